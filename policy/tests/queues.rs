//! The policies that decide about queues: scenarios worked out by hand, and invariants.

use std::collections::VecDeque;

use proptest::prelude::*;

use policy::{
    Class, CodeHp, Kernel, Op, OpKind, OrionCode, OrionCodeParams, QueueClient, ReefN, ReefNParams,
};

const HP: QueueClient = QueueClient::Hp;
const BE0: QueueClient = QueueClient::Be(0);
const BE1: QueueClient = QueueClient::Be(1);

fn op(class: Class, sm_needed: u32, expected_us: u64) -> Op {
    Op::kernel(Kernel {
        class,
        sm_needed,
        expected_ns: expected_us * 1_000,
    })
}

fn memory_op() -> Op {
    Op {
        kind: OpKind::Memory,
        ..op(Class::Unknown, 0, 0)
    }
}

fn code_goes(code: &mut OrionCode, hp: Option<Op>, be: &[Option<Op>]) -> Vec<QueueClient> {
    let mut goes = Vec::new();
    code.poll(hp.as_ref(), be, &mut goes);
    goes
}

fn reef_goes(reef: &mut ReefN, hp: Option<Op>, be: &[Option<Op>]) -> Vec<QueueClient> {
    let mut goes = Vec::new();
    reef.poll(hp.as_ref(), be, &mut goes);
    goes
}

/// The artefact's 160 µs for ResNet50.
fn code(be_count: usize) -> OrionCode {
    OrionCode::new(OrionCodeParams::new(160_000), be_count)
}

#[test]
fn the_code_throttles_after_the_kernel_that_passes_the_bound_until_all_is_complete() {
    let mut code = code(1);
    let large = [Some(op(Class::Compute, 500, 80))];
    // HP is idle. sum: 80, 160 (not above 160), 240: over, and it still goes.
    for _ in 0..3 {
        assert_eq!(code_goes(&mut code, None, &large), [BE0]);
    }
    assert_eq!(code_goes(&mut code, None, &large), []);
    // Two of three complete: not drained.
    code.handle_complete(BE0);
    code.handle_complete(BE0);
    assert_eq!(code_goes(&mut code, None, &large), []);
    // Drained: the sum restarts with this one, in the same pass.
    code.handle_complete(BE0);
    for _ in 0..3 {
        assert_eq!(code_goes(&mut code, None, &large), [BE0]);
    }
    assert_eq!(code_goes(&mut code, None, &large), []);
}

#[test]
fn the_codes_sum_does_not_shrink_by_what_completes_below_the_bound() {
    let mut code = code(1);
    let head = [Some(op(Class::Memory, 10, 80))];
    for _ in 0..3 {
        // 80, 160, 240, each alone on the device.
        assert_eq!(code_goes(&mut code, None, &head), [BE0]);
        code.handle_complete(BE0);
    }
    // Over, and drained: goes, and the sum is 80 again.
    assert_eq!(code_goes(&mut code, None, &head), [BE0]);
    assert_eq!(code_goes(&mut code, None, &head), [BE0]);
}

#[test]
fn the_codes_default_of_one_nanosecond_is_one_kernel_at_a_time() {
    let mut code = OrionCode::new(OrionCodeParams::new(1), 1);
    let head = [Some(op(Class::Memory, 10, 5))];
    assert_eq!(code_goes(&mut code, None, &head), [BE0]);
    assert_eq!(code_goes(&mut code, None, &head), []);
    code.handle_complete(BE0);
    assert_eq!(code_goes(&mut code, None, &head), [BE0]);
}

#[test]
fn the_code_goes_by_the_class_of_the_hp_op_submitted_last() {
    let mut code = code(1);
    let memory = [Some(op(Class::Memory, 80, 10))];
    // HP submits a compute kernel: a memory kernel of 80 ≤ 80 SMs goes.
    let hp = Some(op(Class::Compute, 80, 1_000));
    assert_eq!(code_goes(&mut code, hp, &memory), [HP, BE0]);
    // The compute kernel executes for 1 ms, but HP has submitted a memory kernel behind it.
    let hp = Some(op(Class::Memory, 80, 1_000));
    assert_eq!(code_goes(&mut code, hp, &memory), [HP]);
    assert_eq!(code_goes(&mut code, None, &memory), []);
    let compute = [Some(op(Class::Compute, 80, 10))];
    assert_eq!(code_goes(&mut code, None, &compute), [BE0]);
    // One of both is complete: the request is still in progress.
    code.handle_complete(HP);
    assert_eq!(code_goes(&mut code, None, &memory), []);
    code.handle_complete(HP);
    code.handle_request_end(HP, 2_000_000);
    assert_eq!(code_goes(&mut code, None, &memory), [BE0]);
}

#[test]
fn beside_hp_the_code_lets_go_what_needs_at_most_80_sms_and_differs_or_is_unknown() {
    for (hp, be, sm_needed, goes) in [
        (Class::Compute, Class::Memory, 80, true),
        (Class::Compute, Class::Memory, 81, false),
        (Class::Compute, Class::Compute, 1, false),
        (Class::Memory, Class::Memory, 1, false),
        (Class::Memory, Class::Compute, 80, true),
        (Class::Unknown, Class::Compute, 80, true),
        (Class::Compute, Class::Unknown, 80, true),
        (Class::Unknown, Class::Unknown, 81, false),
    ] {
        let mut code = code(1);
        code_goes(&mut code, Some(op(hp, 40, 10)), &[None]);
        let head = [Some(op(be, sm_needed, 10))];
        let expected: &[QueueClient] = if goes { &[BE0] } else { &[] };
        assert_eq!(code_goes(&mut code, None, &head), expected, "{hp:?} {be:?}");
    }
}

#[test]
fn the_code_counts_sms_within_a_pass_only() {
    let mut code = code(2);
    code_goes(&mut code, Some(op(Class::Compute, 40, 10)), &[None, None]);
    let heads = [
        Some(op(Class::Memory, 50, 10)),
        Some(op(Class::Memory, 40, 10)),
    ];
    // 50 + 40 > 80 in one pass; in the next, 40 ≤ 80, although 50 are in use.
    assert_eq!(code_goes(&mut code, None, &heads), [BE0]);
    let heads = [None, heads[1]];
    assert_eq!(code_goes(&mut code, None, &heads), [BE1]);
}

#[test]
fn the_codes_throttle_waits_for_the_last_op_of_every_be_client() {
    let mut code = code(2);
    let heads = [
        Some(op(Class::Memory, 10, 100)),
        Some(op(Class::Memory, 10, 100)),
    ];
    // 100, then 200 > 160: over.
    assert_eq!(code_goes(&mut code, None, &heads), [BE0, BE1]);
    code.handle_complete(BE1);
    assert_eq!(code_goes(&mut code, None, &heads), []);
    code.handle_complete(BE0);
    assert_eq!(code_goes(&mut code, None, &heads), [BE0, BE1]);
}

#[test]
fn memory_operations_go_beside_any_hp_but_wait_for_the_throttle() {
    let mut code = code(1);
    code_goes(&mut code, Some(op(Class::Memory, 80, 10)), &[None]);
    for _ in 0..100 {
        assert_eq!(code_goes(&mut code, None, &[Some(memory_op())]), [BE0]);
    }
    let long = [Some(op(Class::Compute, 80, 200))];
    assert_eq!(code_goes(&mut code, None, &long), [BE0]);
    assert_eq!(code_goes(&mut code, None, &[Some(memory_op())]), []);
}

#[test]
fn in_its_first_requests_a_be_client_passes_all_but_the_throttle() {
    let params = OrionCodeParams {
        warmup_requests: 2,
        ..OrionCodeParams::new(160_000)
    };
    let mut code = OrionCode::new(params, 1);
    code_goes(&mut code, Some(op(Class::Compute, 80, 10)), &[None]);
    let head = [Some(op(Class::Compute, 5_000, 10))];
    for goes in [true, true, false] {
        let expected: &[QueueClient] = if goes { &[BE0] } else { &[] };
        assert_eq!(code_goes(&mut code, None, &head), expected);
        if goes {
            code.handle_complete(BE0);
            code.handle_request_end(BE0, 10_000);
        }
    }
}

#[test]
fn beside_a_training_hp_the_code_searches_and_opens_its_update_phase() {
    let params = OrionCodeParams {
        hp: CodeHp::Training {
            request_ns_max: 135_000_000,
            update_start: Some(2),
            sm_needed_max: 6_272,
        },
        ..OrionCodeParams::new(1_000_000)
    };
    let mut code = OrionCode::new(params, 1);
    assert_eq!(code.sm_threshold(), 3_136);
    let hp = Some(op(Class::Compute, 80, 10));
    let head = [Some(op(Class::Compute, 3_136, 10))];
    // Two ops submitted, one complete: forward and backward phase.
    code_goes(&mut code, hp, &[None]);
    code_goes(&mut code, hp, &[None]);
    code.handle_complete(HP);
    assert_eq!(code_goes(&mut code, None, &head), []);
    // Both complete: update phase, the class does not matter.
    code.handle_complete(HP);
    assert_eq!(code_goes(&mut code, None, &head), [BE0]);
    assert_eq!(
        code_goes(&mut code, None, &[Some(op(Class::Compute, 3_137, 10))]),
        []
    );
    // Ten iterations above 135 ms: down; ten within: up.
    (0..10).for_each(|_| code.handle_request_end(HP, 140_000_000));
    assert_eq!(code.sm_threshold(), 1_568);
    (0..10).for_each(|_| code.handle_request_end(HP, 135_000_000));
    assert_eq!(code.sm_threshold(), (1_568 + 3_136) / 2);
}

#[test]
fn the_code_serves_be_clients_in_turn_after_the_last_that_was_served() {
    let mut code = OrionCode::new(OrionCodeParams::new(1), 3);
    let head = Some(op(Class::Memory, 10, 5));
    let mut order = Vec::new();
    for _ in 0..6 {
        // Over after each: one at a time.
        let goes = code_goes(&mut code, None, &[head; 3]);
        assert_eq!(goes.len(), 1);
        code.handle_complete(goes[0]);
        order.extend(goes);
    }
    let turn = [QueueClient::Be(0), QueueClient::Be(1), QueueClient::Be(2)];
    assert_eq!(order, [turn, turn].concat());
}

#[test]
fn reef_lets_twelve_kernels_of_a_client_ahead_while_hp_is_idle() {
    let mut reef = ReefN::new(ReefNParams::new(80), 2);
    let huge = Some(op(Class::Compute, 5_000, 1_000));
    for _ in 0..12 {
        assert_eq!(reef_goes(&mut reef, None, &[huge, None]), [BE0]);
    }
    assert_eq!(reef_goes(&mut reef, None, &[huge, None]), []);
    // The other client has twelve of its own.
    assert_eq!(reef_goes(&mut reef, None, &[huge, huge]), [BE1]);
    reef.handle_complete(BE0);
    assert_eq!(reef_goes(&mut reef, None, &[huge, None]), [BE0]);
    assert_eq!(reef_goes(&mut reef, None, &[huge, None]), []);
}

#[test]
fn beside_hp_reef_pads_each_kernel_with_one_that_fits_and_is_no_longer() {
    for (sm_needed, us, goes) in [
        (20, 100, true),
        (20, 90, true),
        (21, 90, false),
        (20, 101, false),
        (0, 1, true),
    ] {
        let mut reef = ReefN::new(ReefNParams::new(80), 1);
        let head = [Some(op(Class::Compute, sm_needed, us))];
        let expected: &[QueueClient] = if goes { &[HP, BE0] } else { &[HP] };
        let hp = Some(op(Class::Compute, 60, 100));
        assert_eq!(reef_goes(&mut reef, hp, &head), expected);
        // One for each HP kernel.
        assert_eq!(reef_goes(&mut reef, None, &head), []);
    }
}

#[test]
fn reef_pads_nothing_beside_a_kernel_that_fills_the_device() {
    let mut reef = ReefN::new(ReefNParams::new(80), 1);
    for sm_needed in [80, 81, 6_000] {
        let hp = Some(op(Class::Compute, sm_needed, 100));
        let head = [Some(op(Class::Memory, 1, 1))];
        assert_eq!(reef_goes(&mut reef, hp, &head), [HP]);
    }
}

#[test]
fn reefs_hp_is_busy_until_its_request_ends() {
    let mut reef = ReefN::new(ReefNParams::new(80), 1);
    let head = [Some(op(Class::Memory, 1, 1))];
    let hp = Some(op(Class::Compute, 80, 100));
    assert_eq!(reef_goes(&mut reef, hp, &head), [HP]);
    reef.handle_complete(HP);
    assert_eq!(reef_goes(&mut reef, None, &head), []);
    reef.handle_request_end(HP);
    assert_eq!(reef_goes(&mut reef, None, &head), [BE0]);
}

#[test]
fn reef_takes_the_first_client_in_turn_whose_head_fits() {
    let mut reef = ReefN::new(ReefNParams::new(80), 2);
    let hp = Some(op(Class::Compute, 60, 100));
    let (small, large) = (
        Some(op(Class::Memory, 10, 10)),
        Some(op(Class::Memory, 30, 10)),
    );
    assert_eq!(reef_goes(&mut reef, hp, &[small, small]), [HP, BE0]);
    assert_eq!(reef_goes(&mut reef, hp, &[small, small]), [HP, BE1]);
    assert_eq!(reef_goes(&mut reef, hp, &[large, small]), [HP, BE1]);
}

#[derive(Debug)]
enum Any {
    Code(OrionCode),
    Reef(ReefN),
}

impl Any {
    fn poll(&mut self, hp: Option<&Op>, be: &[Option<Op>], goes: &mut Vec<QueueClient>) {
        match self {
            Self::Code(code) => code.poll(hp, be, goes),
            Self::Reef(reef) => reef.poll(hp, be, goes),
        }
    }

    fn handle_complete(&mut self, client: QueueClient) {
        match self {
            Self::Code(code) => code.handle_complete(client),
            Self::Reef(reef) => reef.handle_complete(client),
        }
    }

    fn handle_request_end(&mut self, client: QueueClient) {
        match self {
            Self::Code(code) => code.handle_request_end(client, 1_000_000),
            Self::Reef(reef) => reef.handle_request_end(client),
        }
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![6 => Just(OpKind::Kernel), 1 => Just(OpKind::Memory)];
    (kind, 0..3_usize, 0..200_u32, 0..400_u64).prop_map(|(kind, class, sm_needed, us)| Op {
        kind,
        ..op(Class::ALL[class], sm_needed, us)
    })
}

fn any_queue() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(any_op(), 0..30)
}

/// Served queues, in rounds in which at most one op of each client completes.
struct World {
    policy: Any,
    hp: VecDeque<Op>,
    be: Vec<VecDeque<Op>>,
    /// In flight: HP, then BE.
    in_flight: Vec<u32>,
    went: Vec<usize>,
}

impl World {
    /// Passes until nothing goes. HP's head goes in every pass.
    fn serve(&mut self) -> Result<(), TestCaseError> {
        loop {
            let heads: Vec<Option<Op>> = self.be.iter().map(|q| q.front().copied()).collect();
            let mut goes = Vec::new();
            let hp = self.hp.front().copied();
            self.policy.poll(hp.as_ref(), &heads, &mut goes);
            prop_assert_eq!(goes.contains(&HP), hp.is_some(), "HP never waits");
            for client in &goes {
                let (queue, index) = match client {
                    QueueClient::Hp => (&mut self.hp, 0),
                    QueueClient::Be(index) => (&mut self.be[*index], index + 1),
                };
                prop_assert!(queue.pop_front().is_some(), "only what is there goes");
                self.in_flight[index] += 1;
                self.went[index] += 1;
            }
            if goes.is_empty() {
                return Ok(());
            }
        }
    }

    fn complete(&mut self, index: usize) {
        if self.in_flight[index] == 0 {
            return;
        }
        self.in_flight[index] -= 1;
        let client = match index {
            0 => HP,
            be => QueueClient::Be(be - 1),
        };
        self.policy.handle_complete(client);
        if index == 0 && self.in_flight[0] == 0 && self.hp.is_empty() {
            self.policy.handle_request_end(HP);
        }
    }
}

proptest! {
    #[test]
    fn every_op_goes_once_hp_never_waits_and_nobody_starves(
        is_code in any::<bool>(),
        bound_us in 0..500_u64,
        hp in any_queue(),
        be in prop::collection::vec(any_queue(), 1..4),
        order in prop::collection::vec(0..4_usize, 0..40),
    ) {
        let lengths: Vec<usize> = std::iter::once(hp.len()).chain(be.iter().map(Vec::len)).collect();
        let policy = match is_code {
            true => Any::Code(OrionCode::new(OrionCodeParams::new(bound_us * 1_000), be.len())),
            false => Any::Reef(ReefN::new(ReefNParams::new(80), be.len())),
        };
        let count = be.len() + 1;
        let mut world = World {
            policy,
            hp: hp.into(),
            be: be.into_iter().map(VecDeque::from).collect(),
            in_flight: vec![0; count],
            went: vec![0; count],
        };
        world.serve()?;
        for index in order {
            world.complete(index % count);
            world.serve()?;
        }
        // Everything completes, HP first; each round something goes or nothing is left.
        for _ in 0..200 {
            (0..count).for_each(|index| world.complete(index));
            world.serve()?;
        }
        prop_assert_eq!(world.went, lengths);
    }
}
