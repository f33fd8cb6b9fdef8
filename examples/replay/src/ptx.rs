//! The PTX of synthetic kernels: one of our own, with a given work, for each of a trace. A trace
//! states a kernel's duration, blocks, shape and bound, not its computation. The bodies are chains
//! of fused multiply-adds ([`Kind::Compute`]), a stream of loads and stores over a buffer larger
//! than the L2 cache ([`Kind::Memory`]), or both ([`Kind::Mixed`], for kernels of unknown class).
//! All have the same parameters:
//!
//! | parameter | type | meaning |
//! |-----------|------|---------|
//! | results   | u64  | address of three u64: sums, launches, threads with a wrong sum |
//! | buffer    | u64  | address of the buffer; each of its words is 1, before and after |
//! | loops     | u32  | how often the body runs: decides the duration |
//! | more      | u32  | how many blocks, from the first, run it once more: a finer step |
//! | per_loop  | u32  | the increment of a thread's sum in one run of the body |
//! | blocks    | u32  | blocks of the grid |
//! | mask      | u32  | the buffer's length in units of 16 bytes, a power of two, less one |
//! | first     | u32  | unit where this launch begins, past what the last left in the cache |
//!
//! Every thread must end with the sum loops × per_loop, with its own loops: each multiply-add is `x
//! = y · 1 + 1`, each loaded word is 1. A thread with another sum counts itself as wrong; the first
//! of each block adds its sum to the results, and the first block counts the launch. The GPU itself
//! thus reports that every launch ran, once, to its end, in all its threads.
//!
//! *Against optimisation by compilers*: each thread loads its 1 from a place of its own. A constant
//! would allow the result to be computed beforehand; a value shared by a warp would let ptxas for
//! sm_120 do the arithmetic once for the warp (seen: `UFFMA`). Chains begin differently, and each
//! continues its neighbour's value, so that no two are equal and none can be finished first.
//!
//! *Version*: PTX 6.0 (CUDA 9.0, 2017) for `sm_50`. Nothing newer is needed, and the driver
//! compiles it for every GPU of a driver of CUDA 11.7, Volta to Blackwell and later ones included.

use std::fmt::Write as _;

use profiler::{ResourceClass, Trace, TraceKernel};

/// The kind of work that takes a kernel its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Compute,
    Memory,
    Mixed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) entry: String,
    pub(crate) kind: Kind,
    pub(crate) threads: u32,
    /// Chains of multiply-adds, each in a register.
    chains: u32,
}

/// The entry that adds a vector to another, `y = a · x + y`: (f32 a, u64 x, u64 y, u32 n).
pub(crate) const CHECK_ENTRY: &str = "pillion_check";
/// Most loops: a chain counts in f32, exactly up to 2^24, and adds [`MIXED_ROUNDS`] in a loop.
pub(crate) const LOOPS_MAX: u32 = (1 << 24) / MIXED_ROUNDS;
/// Words of 4 bytes that a thread loads and stores in a loop.
const WORDS: u32 = 4;
/// Multiply-adds of each chain in a loop beside its memory access: at 24 and more chains half to a
/// fifth of the meanwhile possible ones on the table's GPUs.
const MIXED_ROUNDS: u32 = 2;
/// Registers of a kernel beside its chains, as reported by ptxas 12.9 and 13.5.
const OTHER_REGISTERS: u32 = 12;
/// The additional registers of a memory access.
const MEMORY_REGISTERS: u32 = 12;
/// With fewer chains latency, not throughput, would bound the kernel.
const CHAINS_MIN: u32 = 4;
/// Below the 255 registers that a thread may have.
const CHAINS_MAX: u32 = 200;

impl Kind {
    pub(crate) const fn of(class: ResourceClass) -> Self {
        match class {
            ResourceClass::Compute => Self::Compute,
            ResourceClass::Memory => Self::Memory,
            ResourceClass::Unknown => Self::Mixed,
        }
    }

    /// The prefix of its entries; a `$` and a number follow.
    const fn name(self) -> &'static str {
        match self {
            Self::Compute => "pillion_compute",
            Self::Memory => "pillion_memory",
            Self::Mixed => "pillion_mixed",
        }
    }

    const fn touches_memory(self) -> bool {
        matches!(self, Self::Memory | Self::Mixed)
    }

    const fn rounds(self) -> u32 {
        match self {
            Self::Compute => 1,
            Self::Memory => 0,
            Self::Mixed => MIXED_ROUNDS,
        }
    }
}

impl Body {
    pub(crate) fn of(index: usize, kernel: &TraceKernel) -> Self {
        let kind = Kind::of(kernel.class);
        let others = OTHER_REGISTERS
            + if kind.touches_memory() {
                MEMORY_REGISTERS
            } else {
                0
            };
        let chains = match kind {
            Kind::Memory => 0,
            _ => kernel
                .registers
                .saturating_sub(others)
                .clamp(CHAINS_MIN, CHAINS_MAX),
        };
        Self {
            entry: format!("{}${index}", kind.name()),
            kind,
            threads: kernel.block.iter().product(),
            chains,
        }
    }

    /// The increment of a thread's sum in one run of the body.
    pub(crate) const fn per_loop(&self) -> u32 {
        let words = if self.kind.touches_memory() { WORDS } else { 0 };
        words + self.chains * self.kind.rounds()
    }

    fn write(&self, text: &mut String) {
        let chains = self.chains;
        let _ = write!(
            text,
            "
// {:?}: {chains} chains, {} to a thread's sum in a loop
.visible .entry {}(
  .param .u64 results, .param .u64 buffer, .param .u32 loops, .param .u32 more,
  .param .u32 per_loop, .param .u32 blocks, .param .u32 mask, .param .u32 first)
.maxntid {}, 1, 1
{{
  .reg .pred %p<5>;
  .reg .f32 %one, %t, %x<{}>;
  .reg .b32 %r<16>, %v<4>, %unit, %stride, %sum;
  .reg .b64 %d<8>;
{HEAD}",
            self.kind,
            self.per_loop(),
            self.entry,
            self.threads,
            chains.max(1),
        );
        let begin: u32 = (0..chains).sum();
        let _ = writeln!(text, "  mov.u32 %sum, {};", begin.wrapping_neg());
        for chain in 0..chains {
            let bits = (chain as f32).to_bits();
            let _ = writeln!(text, "  mov.f32 %x{chain}, 0f{bits:08X};");
        }
        text.push_str(LOOP);
        if self.kind.touches_memory() {
            text.push_str(ACCESS);
        }
        for _ in 0..self.kind.rounds() {
            text.push_str("  mov.f32 %t, %x0;\n");
            for chain in 1..chains {
                let _ = writeln!(text, "  fma.rn.f32 %x{}, %x{chain}, %one, %one;", chain - 1);
            }
            let _ = writeln!(text, "  fma.rn.f32 %x{}, %t, %one, %one;", chains - 1);
        }
        text.push_str("  add.u32 %r7, %r7, 1;\n  bra.uni again;\nend:\n");
        for chain in 0..chains {
            let _ = writeln!(
                text,
                "  cvt.rzi.u32.f32 %r8, %x{chain};\n  add.u32 %sum, %sum, %r8;"
            );
        }
        text.push_str(TAIL);
    }
}

/// The module: an entry for each kernel of the trace, in its order, and the check kernel.
pub(crate) fn module(trace: &Trace) -> String {
    let mut text = String::from(".version 6.0\n.target sm_50\n.address_size 64\n");
    for (index, kernel) in trace.kernels.iter().enumerate() {
        Body::of(index, kernel).write(&mut text);
    }
    text.push_str(CHECK);
    text
}

/// Reads the parameters, and finds this thread's first unit of the buffer.
const HEAD: &str = "\
  ld.param.u64 %d0, [results];
  cvta.to.global.u64 %d0, %d0;
  ld.param.u64 %d1, [buffer];
  cvta.to.global.u64 %d1, %d1;
  ld.param.u32 %r0, [loops];
  ld.param.u32 %r12, [more];
  ld.param.u32 %r1, [per_loop];
  ld.param.u32 %r2, [blocks];
  ld.param.u32 %r3, [mask];
  ld.param.u32 %r4, [first];
  mov.u32 %r5, %tid.x;
  mov.u32 %r6, %ctaid.x;
  setp.lt.u32 %p4, %r6, %r12;
  selp.u32 %r13, 1, 0, %p4;
  add.u32 %r0, %r0, %r13;
  mov.u32 %stride, %ntid.x;
  mad.lo.u32 %unit, %r6, %stride, %r5;
  add.u32 %unit, %unit, %r4;
  mul.lo.u32 %stride, %stride, %r2;
  and.b32 %r10, %unit, %r3;
  mul.wide.u32 %d2, %r10, 16;
  add.s64 %d2, %d1, %d2;
  ld.global.u32 %r9, [%d2];
  cvt.rn.f32.u32 %one, %r9;
  mov.u32 %r7, 0;
";

const LOOP: &str = "\
again:
  .pragma \"nounroll\";
  setp.ge.u32 %p0, %r7, %r0;
  @%p0 bra.uni end;
";

/// Moves four words from the buffer, times one, back to their places.
const ACCESS: &str = "\
  and.b32 %r10, %unit, %r3;
  mul.wide.u32 %d2, %r10, 16;
  add.s64 %d2, %d1, %d2;
  ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%d2];
  add.u32 %unit, %unit, %stride;
  add.u32 %sum, %sum, %v0;
  add.u32 %sum, %sum, %v1;
  add.u32 %sum, %sum, %v2;
  add.u32 %sum, %sum, %v3;
  mul.lo.u32 %v0, %v0, %r9;
  mul.lo.u32 %v1, %v1, %r9;
  mul.lo.u32 %v2, %v2, %r9;
  mul.lo.u32 %v3, %v3, %r9;
  st.global.v4.u32 [%d2], {%v0, %v1, %v2, %v3};
";

/// Checks the sum and adds to the results.
const TAIL: &str = "\
  mul.lo.u32 %r11, %r0, %r1;
  setp.ne.u32 %p1, %sum, %r11;
  mov.u64 %d3, 1;
  @%p1 red.global.add.u64 [%d0+16], %d3;
  setp.ne.u32 %p2, %r5, 0;
  @%p2 ret;
  cvt.u64.u32 %d4, %sum;
  red.global.add.u64 [%d0], %d4;
  setp.ne.u32 %p3, %r6, 0;
  @%p3 ret;
  red.global.add.u64 [%d0+8], %d3;
  ret;
}
";

const CHECK: &str = "
// y = a * x + y
.visible .entry pillion_check(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p0;
  .reg .f32 %a, %x, %y;
  .reg .b32 %r<4>;
  .reg .b64 %d<3>;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  ld.param.u32 %r3, [n];
  setp.ge.u32 %p0, %r0, %r3;
  @%p0 ret;
  ld.param.f32 %a, [a];
  ld.param.u64 %d0, [x];
  cvta.to.global.u64 %d0, %d0;
  ld.param.u64 %d1, [y];
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d0, %d0, %d2;
  add.s64 %d1, %d1, %d2;
  ld.global.f32 %x, [%d0];
  ld.global.f32 %y, [%d1];
  fma.rn.f32 %y, %a, %x, %y;
  st.global.f32 [%d1], %y;
  ret;
}
";
