// SPDX-License-Identifier: Apache-2.0
// Made by tools/make_gather_ptx.py of gather.cu; sha256 of what it was made of:
// 7bc1b919e6a614c0f3775fc6bfc081de4acf9625abb302d55321ba2ebaa04fe4
#pragma once

namespace tendon::v0::detail::cuda {

inline constexpr const char* kGatherKernel = "tendon_gather";
inline constexpr const char* kGatherPtx = R"ptx(
.version 8.0
.target sm_70
.address_size 64
.visible .entry tendon_gather(
  .param .align 8 .b8 tendon_gather_param_0[4080]
)
{
  .reg .pred %p<16>;
  .reg .b16 %rs<5>;
  .reg .b32 %r<39>;
  .reg .b64 %rd<71>;
  mov.b64 %rd43, tendon_gather_param_0;
  mov.u64 %rd44, %rd43;
  mov.u32 %r1, %tid.x;
  mov.u32 %r20, %ctaid.x;
  mul.wide.u32 %rd1, %r20, 4096;
  mov.u32 %r21, %ctaid.y;
  mul.wide.u32 %rd45, %r21, 24;
  add.s64 %rd46, %rd44, %rd45;
  add.s64 %rd2, %rd46, 16;
  ld.param.u64 %rd3, [%rd46+16];
  setp.le.u64 %p1, %rd3, %rd1;
  @%p1 bra $L__BB0_21;
  sub.s64 %rd47, %rd3, %rd1;
  min.u64 %rd48, %rd47, 4096;
  cvt.u32.u64 %r2, %rd48;
  ld.param.u64 %rd49, [%rd2+-8];
  add.s64 %rd4, %rd49, %rd1;
  ld.param.u64 %rd50, [%rd2+-16];
  add.s64 %rd5, %rd50, %rd1;
  or.b64 %rd6, %rd5, %rd4;
  and.b64 %rd51, %rd6, 15;
  setp.eq.s64 %p2, %rd51, 0;
  @%p2 bra $L__BB0_15;
  and.b64 %rd52, %rd6, 3;
  setp.eq.s64 %p3, %rd52, 0;
  @%p3 bra $L__BB0_9;
  setp.ge.u32 %p4, %r1, %r2;
  @%p4 bra $L__BB0_6;
  cvt.u64.u32 %rd53, %r1;
  add.s64 %rd60, %rd5, %rd53;
  add.s64 %rd59, %rd4, %rd53;
  mov.u32 %r33, %r1;
$L__BB0_5:
  ld.u8 %rs1, [%rd59];
  st.u8 [%rd60], %rs1;
  add.s64 %rd60, %rd60, 256;
  add.s64 %rd59, %rd59, 256;
  add.s32 %r33, %r33, 256;
  setp.lt.u32 %p5, %r33, %r2;
  @%p5 bra $L__BB0_5;
$L__BB0_6:
  add.s32 %r34, %r1, %r2;
  setp.ge.u32 %p6, %r34, %r1;
  @%p6 bra $L__BB0_21;
  cvt.u64.u32 %rd54, %r34;
  add.s64 %rd62, %rd5, %rd54;
  add.s64 %rd61, %rd4, %rd54;
$L__BB0_8:
  ld.u8 %rs2, [%rd61];
  st.u8 [%rd62], %rs2;
  add.s64 %rd62, %rd62, 256;
  add.s64 %rd61, %rd61, 256;
  add.s32 %r34, %r34, 256;
  setp.lt.u32 %p7, %r34, %r2;
  @%p7 bra $L__BB0_8;
  bra.uni $L__BB0_21;
$L__BB0_15:
  shr.u32 %r14, %r2, 4;
  setp.ge.u32 %p12, %r1, %r14;
  @%p12 bra $L__BB0_18;
  mul.wide.u32 %rd57, %r1, 16;
  add.s64 %rd68, %rd4, %rd57;
  add.s64 %rd67, %rd5, %rd57;
  mov.u32 %r37, %r1;
$L__BB0_17:
  ld.v4.u32 {%r24, %r25, %r26, %r27}, [%rd68];
  st.v4.u32 [%rd67], {%r24, %r25, %r26, %r27};
  add.s64 %rd68, %rd68, 4096;
  add.s64 %rd67, %rd67, 4096;
  add.s32 %r37, %r37, 256;
  setp.lt.u32 %p13, %r37, %r14;
  @%p13 bra $L__BB0_17;
$L__BB0_18:
  and.b32 %r32, %r2, 8176;
  add.s32 %r38, %r32, %r1;
  setp.ge.u32 %p14, %r38, %r2;
  @%p14 bra $L__BB0_21;
  cvt.u64.u32 %rd58, %r38;
  add.s64 %rd70, %rd5, %rd58;
  add.s64 %rd69, %rd4, %rd58;
$L__BB0_20:
  ld.u8 %rs4, [%rd69];
  st.u8 [%rd70], %rs4;
  add.s64 %rd70, %rd70, 256;
  add.s64 %rd69, %rd69, 256;
  add.s32 %r38, %r38, 256;
  setp.lt.u32 %p15, %r38, %r2;
  @%p15 bra $L__BB0_20;
  bra.uni $L__BB0_21;
$L__BB0_9:
  shr.u32 %r8, %r2, 2;
  setp.ge.u32 %p8, %r1, %r8;
  @%p8 bra $L__BB0_12;
  mul.wide.u32 %rd55, %r1, 4;
  add.s64 %rd64, %rd5, %rd55;
  add.s64 %rd63, %rd4, %rd55;
  mov.u32 %r35, %r1;
$L__BB0_11:
  ld.u32 %r22, [%rd63];
  st.u32 [%rd64], %r22;
  add.s64 %rd64, %rd64, 1024;
  add.s64 %rd63, %rd63, 1024;
  add.s32 %r35, %r35, 256;
  setp.lt.u32 %p9, %r35, %r8;
  @%p9 bra $L__BB0_11;
$L__BB0_12:
  and.b32 %r23, %r2, 8188;
  add.s32 %r36, %r23, %r1;
  setp.ge.u32 %p10, %r36, %r2;
  @%p10 bra $L__BB0_21;
  cvt.u64.u32 %rd56, %r36;
  add.s64 %rd66, %rd5, %rd56;
  add.s64 %rd65, %rd4, %rd56;
$L__BB0_14:
  ld.u8 %rs3, [%rd65];
  st.u8 [%rd66], %rs3;
  add.s64 %rd66, %rd66, 256;
  add.s64 %rd65, %rd65, 256;
  add.s32 %r36, %r36, 256;
  setp.lt.u32 %p11, %r36, %r2;
  @%p11 bra $L__BB0_14;
$L__BB0_21:
  ret;
}
)ptx";

}  // namespace tendon::v0::detail::cuda
