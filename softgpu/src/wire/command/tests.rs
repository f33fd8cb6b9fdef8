//! Every command survives encoding; any words are decoded to slots in range or refused.

use proptest::prelude::*;

use super::*;

fn works() -> Vec<Work> {
    let shape = KernelShape {
        grid_blocks: 1 << 40,
        threads_per_block: 1024,
        registers_per_thread: 255,
        shared_bytes_per_block: 65_536,
        block_ns: 12_345,
        compute_demand: 0.89,
        bandwidth_demand: 0.2,
    };
    let launch = |priority, builtin| Work::Launch {
        priority,
        shape,
        builtin,
        params: std::array::from_fn(|i| i as u64 + 1),
    };
    let mut works = vec![
        launch(None, 5),
        launch(Some(-3), 0),
        Work::Copy {
            direction: CopyDirection::DeviceToHost,
            to: 1,
            from: 2,
            bytes: 3,
        },
        Work::Set {
            to: 9,
            width_bytes: 4,
            value: u32::MAX,
            count: 7,
        },
        Work::Record {
            event: 16_383,
            record: 8,
        },
        Work::Wait {
            other: 0,
            other_seq: 5,
        },
        Work::WriteValue {
            to: 8,
            width_bytes: 4,
            value: 7,
        },
        Work::WaitValue {
            at: 8,
            width_bytes: 8,
            value: u64::MAX,
            until: Until::Nor,
        },
        Work::Host { call: 77 },
        Work::GraphLaunch {
            graph: 3,
            record: 4,
            call: 5,
        },
    ];
    works.extend(box_works());
    works
}

fn box_works() -> [Work; 3] {
    let spot = |start| Spot {
        start,
        pitch: 2,
        slice: 3,
    };
    let extent = Extent {
        width: 7,
        height: 8,
        depth: 9,
    };
    [
        Work::CopyBox {
            direction: CopyDirection::DeviceToDevice,
            to: spot(1),
            from: spot(4),
            extent,
        },
        Work::SetBox {
            to: spot(1),
            width_bytes: 2,
            value: 4,
            extent,
        },
        Work::Free { address: 12 },
    ]
}

#[test]
fn nodes_of_a_graph_survive_the_journey_and_graphs_do_not_nest() {
    for work in works() {
        let is_node = matches!(
            work,
            Work::Launch { .. }
                | Work::Copy { .. }
                | Work::Set { .. }
                | Work::Record { .. }
                | Work::Host { .. }
        );
        let node = Command::GraphNode { graph: 17, work };
        let back = Command::decode(&node.encode());
        assert_eq!(back == Ok(node), is_node, "{back:?}");
    }
}

#[test]
fn commands_survive_the_journey() {
    let stream = 1023;
    let submitted = works().into_iter().map(|work| Command::Submit {
        stream,
        seq: u64::MAX - 1,
        work,
    });
    let others = [
        Command::CreateStream {
            stream,
            context: 15,
            priority: -5,
            kind: StreamKind::Legacy,
        },
        Command::DestroyStream { stream },
        Command::HostDone { call: u64::MAX },
        Command::GraphClear { graph: 4095 },
    ];
    for command in submitted.chain(others) {
        assert_eq!(Command::decode(&command.encode()), Ok(command));
    }
}

#[test]
fn a_wait_is_over_when_the_flags_of_the_header_say_so() {
    use Until::{And, Equal, GreaterOrEqual, Nor};
    for (until, width_bytes, memory, value, over) in [
        (GreaterOrEqual, 4, 5, 5, true),
        (GreaterOrEqual, 4, 4, 5, false),
        // Cyclic: a value just after the wrap is greater than one just before it.
        (GreaterOrEqual, 4, 3, u64::from(u32::MAX), true),
        (GreaterOrEqual, 8, 3, u64::from(u32::MAX), false),
        (GreaterOrEqual, 8, 3, u64::MAX, true),
        (Equal, 8, 3, 3, true),
        (Equal, 8, 3, 2, false),
        (And, 4, 6, 2, true),
        (And, 4, 4, 2, false),
        (Nor, 4, u64::from(u32::MAX), 0, false),
        (Nor, 8, u64::from(u32::MAX), 0, true),
    ] {
        let answer = until.is_over(width_bytes, memory, value);
        assert_eq!(answer, over, "{until:?} {width_bytes} {memory} {value}");
    }
}

proptest! {
    #[test]
    fn any_words_are_decoded_to_slots_in_range_or_refused(
        kind in 0u32..24, is_node: bool, stream in 0u32..2048, rest: [u64; COMMAND_WORDS],
    ) {
        let mut words = rest;
        words[0] = u64::from(kind) | u64::from(stream) << 32;
        if is_node {
            words[0] |= u64::from(GRAPH_NODE);
        }
        if let Ok(command) = Command::decode(&words) {
            prop_assert!((stream as usize) < STREAMS, "{command:?}");
        }
    }
}
