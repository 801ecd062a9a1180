// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <tendon/core/error.hpp>

namespace tendon {
namespace {

// Numbers and exit codes reach other processes, languages and scripts: no number is ever assigned
// twice.
TEST(ErrorTable, NumbersThatWereGivenStay) {
  EXPECT_EQ(static_cast<int>(ErrorCode::invalid_argument), 1);
  EXPECT_EQ(static_cast<int>(ErrorCode::timeout), 3);
  EXPECT_EQ(static_cast<int>(ErrorCode::pipe_closed), 11);
  EXPECT_EQ(static_cast<int>(ErrorCode::end_of_stream), 101);
  EXPECT_EQ(static_cast<int>(ErrorCode::peer_lost), 107);
  EXPECT_EQ(static_cast<int>(ErrorCode::resource_exhausted), 201);
  EXPECT_EQ(static_cast<int>(ErrorCode::unsupported_dtype), 301);
  EXPECT_EQ(static_cast<int>(ErrorCode::read_only), 309);
  EXPECT_EQ(static_cast<int>(ErrorCode::device_lost), 312);
  EXPECT_EQ(static_cast<int>(ErrorCode::not_direct), 313);
  EXPECT_EQ(static_cast<int>(ErrorCode::authentication_failed), 114);
  EXPECT_EQ(static_cast<int>(ErrorCode::internal), 901);
}

TEST(ErrorTable, NumbersAndNamesAreUnique) {
  std::set<ErrorCode> codes;
  std::set<std::string_view> names;
  std::set<std::string_view> python_exceptions;
  std::set<int> exit_codes;
  for (const ErrorInfo& row : error_table()) {
    EXPECT_TRUE(codes.insert(row.code).second) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    exit_codes.insert(row.exit_code);
    EXPECT_FALSE(row.summary.empty()) << row.name;
    EXPECT_TRUE(python_exceptions.insert(row.python_exception).second) << row.name;
    EXPECT_NE(row.python_exception, row.python_builtin) << row.name;
    EXPECT_GE(row.exit_code, 0) << row.name;
    EXPECT_LT(row.exit_code, 126) << row.name << ": the shell keeps 126 and up for itself";
    EXPECT_NE(row.exit_code, 1) << row.name << ": 1 is what anything else exits with";
  }
  EXPECT_GT(exit_codes.size(), 25u);
}

TEST(ErrorTable, EveryRowIsFoundByEachOfItsNames) {
  for (const ErrorInfo& row : error_table()) {
    const std::string id = error_id(row.code);
    EXPECT_EQ(id.size(), std::string("TD-E0107").size());
    const std::string number = std::to_string(static_cast<int>(row.code));
    for (const std::string& name : {id, id.substr(4), number, std::string(row.name)}) {
      const auto found = find_error(name);
      ASSERT_TRUE(found.has_value()) << name;
      EXPECT_EQ(found->code, row.code) << name;
    }
    EXPECT_EQ(&error_info(row.code), &row);
    EXPECT_EQ(to_string(row.code), row.name);
  }
}

TEST(ErrorTable, UnknownNamesAndNumbersAreTold) {
  for (const char* name : {"", "TD-E", "TD-E9999", "no_such", "107x", "-107", "107 "})
    EXPECT_FALSE(find_error(name).has_value()) << name;
  // A newer peer may send a number that this build does not know.
  EXPECT_EQ(error_info(static_cast<ErrorCode>(60000)).code, ErrorCode::internal);
}

TEST(Error, MessageNamesCodeDetailAndRemedy) {
  const Error error{ErrorCode::peer_lost, "test.where", "rank 3 (host b, pid 4711) died"};
  const std::string message = error.message();
  EXPECT_NE(message.find("TD-E0107"), std::string::npos) << message;
  EXPECT_NE(message.find("peer lost"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 3 (host b, pid 4711) died"), std::string::npos) << message;
  EXPECT_NE(message.find("do: "), std::string::npos) << message;
  EXPECT_EQ(error.remedy(), Remedy::reconnect);
}

// Neither another call nor another connection helps, and no other remedy describes the solution.
TEST(Error, ALostDeviceEndsTheProcess) {
  for (const std::string_view where : {"cuda.pool", "group.collective"}) {
    const Error error{ErrorCode::device_lost, where, "cuda:0"};
    EXPECT_EQ(error.remedy(), Remedy::use_another);
    EXPECT_NE(error.message().find("\n do: end this process and start it again"), std::string::npos)
        << error.message();
  }
}

// Programs branch on the remedy, and people read the text: both say the same.
TEST(Error, WhatEndsAnEpochIsNotToBeRetried) {
  for (const std::string_view where : {"group", "group.collective", "group.abort", "group.board"}) {
    for (const ErrorCode code : {ErrorCode::timeout, ErrorCode::peer_lost, ErrorCode::group_aborted,
                                 ErrorCode::cancelled, ErrorCode::resource_exhausted}) {
      const Error error{code, where, "all_reduce #7"};
      EXPECT_EQ(error.remedy(), Remedy::reconnect) << error.message();
      EXPECT_NE(error.message().find("shrink() or rebuild()"), std::string::npos)
          << error.message();
    }
  }
  for (const std::string_view where : {"group.join", "group.shrink", "group.recv", "pipe.recv"}) {
    const Error error{ErrorCode::timeout, where, "nobody came"};
    EXPECT_EQ(error.remedy(), Remedy::retry_later) << error.message();
    EXPECT_EQ(error.message().find("shrink()"), std::string::npos) << error.message();
  }
}

// No program is at fault where one end has credentials and the other has none.
TEST(Error, AnotherProtocolIsNoBug) {
  for (const std::string_view where : {"secure.first_bytes", "session.first_bytes"}) {
    const Error error{ErrorCode::protocol_violation, where, "the peer speaks HTTP"};
    EXPECT_EQ(error.remedy(), Remedy::use_another);
    EXPECT_NE(error.message().find("\n do: check the address"), std::string::npos)
        << error.message();
  }
  EXPECT_EQ((Error{ErrorCode::protocol_violation, "context.identity", ""}).remedy(),
            Remedy::fix_the_call);
  EXPECT_EQ((Error{ErrorCode::protocol_violation, "session.hello", ""}).remedy(),
            Remedy::report_bug);
}

TEST(Error, AMessageHidesNothingAndBeginsNoLineOfItsOwn) {
  const Error error{ErrorCode::peer_lost, "test.where", "a\x1b[2J\nb\u202e c\u200b\xff end"};
  const std::string message = error.message();
  EXPECT_NE(message.find("a [2J b  c   end"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), message.find("\n do: "));
}

TEST(Error, SystemErrorsGetCodesOfTheirOwn) {
  const struct {
    int errno_value;
    ErrorCode code;
  } kCases[] = {
      {EMFILE, ErrorCode::too_many_open_files}, {EFBIG, ErrorCode::storage_full},
      {ENFILE, ErrorCode::too_many_open_files}, {ENOSPC, ErrorCode::storage_full},
      {ENOMEM, ErrorCode::resource_exhausted},  {EADDRINUSE, ErrorCode::address_in_use},
      {EACCES, ErrorCode::permission_denied},   {ENOENT, ErrorCode::file_not_found},
      {ECONNREFUSED, ErrorCode::unreachable},   {EIO, ErrorCode::system},
  };
  for (const auto& test : kCases) {
    const Error error = system_error("test.where", "open('file')", test.errno_value);
    EXPECT_EQ(error.code, test.code) << test.errno_value;
    EXPECT_EQ(error.system_errno, test.errno_value);
    EXPECT_NE(error.detail.find("open('file')"), std::string::npos) << error.detail;
  }
}

TEST(Error, WantOfDescriptorsSaysWhatToRaise) {
  EXPECT_NE(system_error("test", "socket", EMFILE).detail.find("`ulimit -n`"), std::string::npos);
  EXPECT_NE(system_error("test", "socket", ENFILE).detail.find("fs.file-max"), std::string::npos);
}

TEST(Error, EveryRemedyHasAName) {
  std::set<std::string_view> names;
  for (const Remedy remedy : {Remedy::fix_the_call, Remedy::retry_later, Remedy::reconnect,
                              Remedy::use_another, Remedy::report_bug})
    EXPECT_TRUE(names.insert(to_string(remedy)).second);
}

}  // namespace
}  // namespace tendon
