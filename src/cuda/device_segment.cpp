// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_segment.hpp"

#include <fcntl.h>

#include <string>
#include <utility>

#include "cuda/slot_sizes.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kWhere = "cuda.segment";

AllocationProperties properties_on(const PrimaryContext& context) {
  AllocationProperties properties{};
  properties.type = AllocationType::pinned;
  properties.handle_types = HandleType::posix_descriptor;
  properties.location = {LocationType::device, context.ordinal()};
  return properties;
}

}  // namespace

std::shared_ptr<DeviceSegment> DeviceSegment::make(std::shared_ptr<PrimaryContext> context,
                                                   DeviceThread& thread, std::uint64_t size_bytes) {
  // Unmapping may take long, so no other thread does it. A device thread that ends takes no further
  // jobs: its process ends too, and the driver takes the memory back.
  return {new DeviceSegment(std::move(context), size_bytes), [&thread](DeviceSegment* segment) {
            if (segment->context_->is_of_this_process())
              (void)thread.post([segment] { delete segment; });
          }};
}

Result<std::shared_ptr<DeviceSegment>> DeviceSegment::create(
    std::shared_ptr<PrimaryContext> context, DeviceThread& thread, std::uint64_t size_bytes) {
  const PrimaryContext::Current current(*context);
  TENDON_CHECK(current.made());
  auto segment = make(std::move(context), thread, size_bytes);
  TENDON_CHECK(segment->allocate());
  TENDON_CHECK(segment->map(AccessFlags::read_write));
  return segment;
}

Result<std::shared_ptr<DeviceSegment>> DeviceSegment::import(
    std::shared_ptr<PrimaryContext> context, DeviceThread& thread, const OwnedFd& descriptor,
    std::uint64_t size_bytes) {
  if (size_bytes == 0 || size_bytes % kLargeSlotBytes != 0)
    return Error{ErrorCode::protocol_violation, kWhere,
                 "a peer passed memory of " + std::to_string(size_bytes) +
                     " bytes, which is no multiple of " + std::to_string(kLargeSlotBytes)};
  const PrimaryContext::Current current(*context);
  TENDON_CHECK(current.made());
  auto segment = make(std::move(context), thread, size_bytes);
  TENDON_CHECK(segment->take_in(descriptor));
  TENDON_CHECK(segment->map(AccessFlags::read));
  return segment;
}

Result<void> DeviceSegment::check(Status status, std::string_view call) const {
  if (status == Status::success) return {};
  return context_->check(status, kWhere,
                         std::string(call) + " of " + std::to_string(size_bytes_) + " bytes on " +
                             to_string(context_->device()));
}

Result<void> DeviceSegment::check_passed(Status status, std::string_view call) const {
  auto checked = check(status, call);
  if (status != Status::invalid_value && status != Status::invalid_handle) return checked;
  Error error = std::move(checked).error();
  error.code = ErrorCode::protocol_violation;
  error.detail = "what a peer passed is not the memory that it said: " + error.detail;
  return error;
}

Result<void> DeviceSegment::allocate() {
  const DriverTable& table = context_->table();
  const AllocationProperties properties = properties_on(*context_);
  TENDON_CHECK(check(table.memory_create(&handle_, size_bytes_, &properties, 0), "cuMemCreate"));
  int descriptor = -1;
  TENDON_CHECK(check(table.memory_export(&descriptor, handle_, HandleType::posix_descriptor, 0),
                     "cuMemExportToShareableHandle"));
  descriptor_ = OwnedFd(descriptor);
  (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // which the driver does not promise
  return {};
}

Result<void> DeviceSegment::take_in(const OwnedFd& descriptor) {
  const DriverTable& table = context_->table();
  // The driver takes the descriptor's number in place of an address.
  auto* const number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  TENDON_CHECK(check_passed(table.memory_import(&handle_, number, HandleType::posix_descriptor),
                            "cuMemImportFromShareableHandle"));
  AllocationProperties properties{};
  TENDON_CHECK(check(table.memory_get_properties(&properties, handle_),
                     "cuMemGetAllocationPropertiesFromHandle"));
  const bool is_there = properties.location.type == LocationType::device &&
                        properties.location.id == context_->ordinal();
  if (is_there) return {};
  return Error{ErrorCode::protocol_violation, kWhere,
               "a peer passed memory that does not lie on " + to_string(context_->device()) +
                   ", where it said that it lies"};
}

Result<void> DeviceSegment::map(AccessFlags access) {
  const DriverTable& table = context_->table();
  TENDON_CHECK(check(table.address_reserve(&address_, size_bytes_, kLargeSlotBytes, 0, 0),
                     "cuMemAddressReserve"));
  // The driver refuses a size that is not that of the memory.
  const Status mapped = table.memory_map(address_, size_bytes_, 0, handle_, 0);
  TENDON_CHECK(descriptor_ ? check(mapped, "cuMemMap") : check_passed(mapped, "cuMemMap"));
  is_mapped_ = true;
  const AccessDescription description{{LocationType::device, context_->ordinal()}, access};
  return check(table.memory_set_access(address_, size_bytes_, &description, 1), "cuMemSetAccess");
}

DeviceSegment::~DeviceSegment() {
  const PrimaryContext::Current current(*context_);
  if (!current.made()) return;  // all mappings have ended with the context
  const DriverTable& table = context_->table();
  if (is_mapped_) context_->note_release(table.memory_unmap(address_, size_bytes_), "cuMemUnmap");
  if (address_ != 0)
    context_->note_release(table.address_free(address_, size_bytes_), "cuMemAddressFree");
  if (handle_ != 0) context_->note_release(table.memory_release(handle_), "cuMemRelease");
}

}  // namespace tendon::v0::detail::cuda
