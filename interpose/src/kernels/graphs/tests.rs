//! The cost of executable graphs through every kind of change.

use proptest::prelude::*;

use super::*;

fn exec(number: usize) -> CUgraphExec {
    CUgraphExec(core::ptr::without_provenance_mut(64 * number))
}

fn node(number: u64) -> CUgraphNode {
    CUgraphNode(core::ptr::without_provenance_mut(number as usize))
}

fn known(class: Class, sm_needed: u32, expected_ns: u64) -> Known {
    Known {
        number: Number::default(),
        id: 1,
        kernel: Kernel {
            class,
            sm_needed,
            expected_ns,
        },
        is_profiled: expected_ns != 0,
        is_learnt: false,
        is_collective: false,
    }
}

fn part(node: u64, depth: usize, kernel: Option<Known>) -> Part {
    Part {
        node,
        depth,
        kernel,
        is_enabled: true,
    }
}

#[test]
fn a_graph_costs_what_its_kernels_cost_and_needs_what_the_largest_needs() {
    static GRAPHS: Graphs = Graphs::new();
    let [a, b] = [known(Class::Memory, 3, 100), known(Class::Memory, 80, 50)];
    let parts = vec![part(8, 0, Some(a)), part(16, 0, None), part(24, 0, Some(b))];
    GRAPHS.handle_made(exec(1), Some(parts));
    let cost = GRAPHS.cost(exec(1));
    assert_eq!(cost.kernel, known(Class::Memory, 80, 150).kernel);
    assert_eq!((cost.kernels, cost.unknown), (2, 0));
    GRAPHS.handle_kernel(exec(1), node(24), known(Class::Compute, 5, 7));
    let cost = GRAPHS.cost(exec(1));
    assert_eq!(cost.kernel, known(Class::Unknown, 5, 107).kernel);
    GRAPHS.handle_enabled(exec(1), node(8), false);
    let cost = GRAPHS.cost(exec(1));
    assert_eq!(cost.kernel, known(Class::Compute, 5, 7).kernel);
    GRAPHS.handle_kernel(exec(1), node(24), known(Class::Unknown, 9, 0));
    let cost = GRAPHS.cost(exec(1));
    assert_eq!((cost.kernels, cost.unknown), (1, 1));
    assert!(!cost.known().is_profiled);
}

#[test]
fn collectives_of_a_graph_are_counted_as_its_nodes_change() {
    static GRAPHS: Graphs = Graphs::new();
    let plain = known(Class::Memory, 3, 100);
    let collective = Known {
        is_collective: true,
        ..plain
    };
    let parts = vec![part(8, 0, Some(collective)), part(16, 0, Some(plain))];
    GRAPHS.handle_made(exec(1), Some(parts));
    let counted = || {
        let (cost, known) = GRAPHS.launched(exec(1));
        // It waits at the gate as a whole.
        assert!(!known.is_collective);
        (cost.kernels, cost.collectives)
    };
    assert_eq!(counted(), (2, 1));
    GRAPHS.handle_kernel(exec(1), node(16), collective);
    assert_eq!(counted(), (2, 2));
    GRAPHS.handle_enabled(exec(1), node(8), false);
    assert_eq!(counted(), (1, 1));
    GRAPHS.handle_kernel(exec(1), node(16), plain);
    assert_eq!(counted(), (1, 0));
    assert_eq!(GRAPHS.launched(exec(2)).0.collectives, 0);
}

fn anew(graphs: &Graphs, exec: CUgraphExec) -> (Cost, usize) {
    let mut found = (Cost::UNKNOWN, 0);
    graphs.with_details(|details| {
        let known = &details.execs[&(exec.0.addr() as u64)];
        found = (Totals::of(&known.parts).cost(), known.totals.steps);
    });
    found
}

#[test]
fn setting_every_node_of_a_graph_takes_a_bounded_number_of_steps_each() {
    static GRAPHS: Graphs = Graphs::new();
    const NODES: u64 = 10_000;
    let before = known(Class::Memory, 3, 100);
    let parts = (1..=NODES).map(|n| part(8 * n, 0, Some(before))).collect();
    GRAPHS.handle_made(exec(1), Some(parts));
    for n in 1..=NODES {
        let after = known(Class::Compute, n as u32, n);
        GRAPHS.handle_kernel(exec(1), node(8 * n), after);
    }
    let (cost, steps) = anew(&GRAPHS, exec(1));
    let sum_ns = NODES * (NODES + 1) / 2;
    assert_eq!(
        cost.kernel,
        known(Class::Compute, NODES as u32, sum_ns).kernel
    );
    assert_eq!(GRAPHS.cost(exec(1)), cost);
    // One addition when created; one subtraction and one addition when set.
    assert_eq!(steps, 3 * NODES as usize);
}

#[test]
fn setting_every_child_graph_takes_a_bounded_number_of_steps_for_each_of_its_nodes() {
    static GRAPHS: Graphs = Graphs::new();
    const CHILDREN: u64 = 2_000;
    const EACH: u64 = 5;
    let nodes = |first: u64, depth, kernel| {
        (1..=EACH).map(move |n| part(8 * (first + n), depth, Some(kernel)))
    };
    let before = known(Class::Memory, 3, 100);
    let child = |n: u64| {
        let head = part(8 * n * (EACH + 1), 0, None);
        std::iter::once(head).chain(nodes(n * (EACH + 1), 1, before))
    };
    GRAPHS.handle_made(exec(1), Some((1..=CHILDREN).flat_map(child).collect()));
    for n in 1..=CHILDREN {
        let after = known(Class::Compute, n as u32, n);
        let new = nodes(1_000_000, 0, after).collect();
        GRAPHS.handle_child(exec(1), node(8 * n * (EACH + 1)), Some(new));
    }
    let (cost, steps) = anew(&GRAPHS, exec(1));
    let sum_ns = EACH * CHILDREN * (CHILDREN + 1) / 2;
    assert_eq!(
        cost.kernel,
        known(Class::Compute, CHILDREN as u32, sum_ns).kernel
    );
    assert_eq!(GRAPHS.cost(exec(1)), cost);
    // One per node when created; for inner nodes, one subtraction and one addition when set.
    assert_eq!(steps as u64, CHILDREN * (1 + 3 * EACH));
}

fn any_change() -> impl Strategy<Value = (u64, Option<Known>, bool)> {
    let class = prop::sample::select(&CLASSES[..]);
    let kernel = (
        class,
        0..4_u32,
        prop::sample::select(&[0, 7, EXPECTED_NS_MAX][..]),
    );
    let kernel = kernel.prop_map(|(class, sms, ns)| known(class, sms, ns));
    (1..12_u64, prop::option::of(kernel), any::<bool>())
}

proptest! {
    #[test]
    fn a_sum_that_changes_node_by_node_is_the_sum_of_the_nodes(
        changes in prop::collection::vec(any_change(), 0..60),
    ) {
        let graphs = Box::leak(Box::new(Graphs::new()));
        let parts = (1..8).map(|n| part(8 * n, 0, Some(known(Class::Memory, 2, 5)))).collect();
        graphs.handle_made(exec(1), Some(parts));
        for (n, kernel, is_enabled) in changes {
            match kernel {
                Some(kernel) => graphs.handle_kernel(exec(1), node(8 * n), kernel),
                None => graphs.handle_enabled(exec(1), node(8 * n), is_enabled),
            }
            prop_assert_eq!(graphs.cost(exec(1)), anew(graphs, exec(1)).0);
        }
    }
}

proptest! {
    #[test]
    fn children_of_any_shape_cost_what_their_nodes_cost(
        depths in prop::collection::vec(0..4_usize, 1..30),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..6_usize, 1..9_u64, any::<bool>()), 0..20),
    ) {
        let graphs = Box::leak(Box::new(Graphs::new()));
        let mut parts: Vec<Part> = Vec::new();
        for (at, depth) in depths.iter().enumerate() {
            // Never deeper by more than one, as a child follows its node.
            let most = parts.last().map_or(0, |last| last.depth + 1);
            let kernel = (at % 3 > 0).then(|| known(Class::Memory, 2, 5));
            parts.push(part(8 * (at as u64 + 1), *depth.min(&most), kernel));
        }
        let mut model = parts.clone();
        graphs.handle_made(exec(1), Some(parts));
        for (turn, (which, count, ns, is_same)) in changes.into_iter().enumerate() {
            let at = which.index(model.len());
            let (of, depth) = (model[at].node, model[at].depth);
            let held = inside(&model, at).unwrap();
            let count = if is_same { held } else { count };
            let kernel = Some(known(Class::Compute, ns as u32, ns));
            let fresh = |n: usize| part(1_000_000 + 8 * (turn * 100 + n) as u64, 0, kernel);
            let new: Vec<Part> = (0..count).map(fresh).collect();
            let mut inner = new.clone();
            inner.iter_mut().for_each(|part| part.depth += depth + 1);
            pair(&mut inner, &model[at + 1..at + 1 + held]);
            model.splice(at + 1..at + 1 + held, inner);
            graphs.handle_child(exec(1), node(of), Some(new));
            prop_assert_eq!(graphs.cost(exec(1)), Totals::of(&model).cost());
            prop_assert_eq!(anew(graphs, exec(1)).0, Totals::of(&model).cost());
            // Each of its nodes is found.
            let last = model[model.len() - 1].node;
            graphs.handle_kernel(exec(1), node(last), known(Class::Memory, 1, 3));
            let end = model.len() - 1;
            model[end].kernel = Some(known(Class::Memory, 1, 3));
            prop_assert_eq!(graphs.cost(exec(1)), Totals::of(&model).cost());
        }
    }
}

#[test]
fn an_update_keeps_the_nodes_and_what_is_left_out() {
    static GRAPHS: Graphs = Graphs::new();
    let a = known(Class::Memory, 3, 100);
    let parts = |first, a| vec![part(first, 0, Some(a)), part(first + 8, 0, Some(a))];
    GRAPHS.handle_made(exec(1), Some(parts(8, a)));
    GRAPHS.handle_enabled(exec(1), node(8), false);
    let b = known(Class::Memory, 3, 1000);
    GRAPHS.handle_updated(exec(1), Some(parts(800, b)));
    assert_eq!(GRAPHS.cost(exec(1)).kernel.expected_ns, 1000);
    GRAPHS.handle_enabled(exec(1), node(8), true);
    assert_eq!(GRAPHS.cost(exec(1)).kernel.expected_ns, 2000);
    GRAPHS.handle_kernel(exec(1), node(16), a);
    assert_eq!(GRAPHS.cost(exec(1)).kernel.expected_ns, 1100);
}

#[test]
fn a_child_graph_is_replaced_inside_its_node() {
    static GRAPHS: Graphs = Graphs::new();
    let a = known(Class::Compute, 3, 100);
    let parts = vec![
        part(8, 0, None),
        part(16, 1, Some(a)),
        part(24, 1, Some(a)),
        part(32, 0, Some(a)),
    ];
    GRAPHS.handle_made(exec(1), Some(parts));
    assert_eq!(GRAPHS.cost(exec(1)).kernel.expected_ns, 300);
    let b = known(Class::Compute, 3, 7);
    let child = vec![part(160, 0, Some(b)), part(240, 0, Some(b))];
    GRAPHS.handle_child(exec(1), node(8), Some(child));
    assert_eq!(GRAPHS.cost(exec(1)).kernel.expected_ns, 114);
    GRAPHS.handle_kernel(exec(1), node(16), a);
    assert_eq!(GRAPHS.cost(exec(1)).kernel.expected_ns, 207);
}

#[test]
fn what_was_destroyed_or_never_seen_is_unknown_and_a_handle_may_come_back() {
    static GRAPHS: Graphs = Graphs::new();
    assert_eq!(GRAPHS.cost(exec(1)), Cost::UNKNOWN);
    let a = known(Class::Compute, 3, 100);
    GRAPHS.handle_made(exec(1), Some(vec![part(8, 0, Some(a))]));
    GRAPHS.handle_ending(exec(1));
    assert_eq!(GRAPHS.cost(exec(1)), Cost::UNKNOWN);
    GRAPHS.handle_made(exec(1), Some(Vec::new()));
    assert_eq!(GRAPHS.cost(exec(1)).kernels, 0);
    assert!(GRAPHS.cost(exec(1)).known().is_profiled);
    GRAPHS.handle_made(exec(1), None);
    assert_eq!(GRAPHS.cost(exec(1)), Cost::UNKNOWN);
}

#[test]
fn executables_that_come_late_find_room_and_those_that_are_launched_stay() {
    static GRAPHS: Graphs = Graphs::new();
    let a = known(Class::Compute, 3, 100);
    for number in 1..=3 * EXECS_MAX {
        GRAPHS.handle_made(exec(number), Some(vec![part(8, 0, Some(a))]));
        assert_eq!(GRAPHS.cost(exec(number)).kernels, 1);
        // A hundred of them are launched repeatedly, and never created again.
        let hot = number % 100 + 1;
        assert!(number < 100 || GRAPHS.cost(exec(hot)).kernels == 1);
    }
    let is_known = |number: &usize| GRAPHS.handles.find(64 * *number as u64).is_some();
    let known = (1..=3 * EXECS_MAX).filter(|n| is_known(n)).count();
    // A replaced executable is forgotten with its nodes.
    GRAPHS.with_details(|details| assert_eq!((details.execs.len(), details.nodes), (known, known)));
    assert!((EXECS_MAX / 2..=EXECS_MAX).contains(&known), "{known}");
}

#[test]
fn nodes_that_come_late_find_room_and_graphs_that_are_launched_stay() {
    static GRAPHS: Graphs = Graphs::new();
    let a = known(Class::Compute, 3, 100);
    for number in 1..=ALL_NODES_MAX / NODES_MAX + 4 {
        let parts = (0..NODES_MAX as u64).map(|node| part(node, 0, None));
        GRAPHS.handle_made(exec(number), Some(parts.collect()));
        assert!(GRAPHS.handles.find(64 * number as u64).is_some());
        if number == 1 {
            GRAPHS.handle_made(exec(1), Some(vec![part(8, 0, Some(a))]));
        }
        assert_eq!(GRAPHS.cost(exec(1)).kernels, 1);
        GRAPHS.with_details(|details| {
            let nodes = details.execs.values().map(|exec| exec.parts.len());
            assert_eq!(nodes.sum::<usize>(), details.nodes);
            assert!(details.nodes <= ALL_NODES_MAX);
        });
    }
}

#[test]
fn a_place_that_is_given_to_another_executable_costs_nobody_what_the_other_does() {
    static GRAPHS: Graphs = Graphs::new();
    // More than there is room for, each with as many SMs as its number.
    let count = EXECS_MAX + EXECS_MAX / 4;
    let cost_of = |number: usize| {
        let cost = GRAPHS.cost(exec(number));
        let is_its = cost.kernel.sm_needed as usize == number;
        assert!(is_its || cost == Cost::UNKNOWN, "{number}: {cost:?}");
    };
    std::thread::scope(|scope| {
        let make = |first: usize| {
            for number in (first..4 * count).step_by(2).map(|n| n % count + 1) {
                let kernel = known(Class::Compute, number as u32, 1);
                GRAPHS.handle_made(exec(number), Some(vec![part(8, 0, Some(kernel))]));
            }
        };
        scope.spawn(move || make(0));
        scope.spawn(move || make(1));
        (0..8 * count).for_each(|n| cost_of(n * 7919 % count + 1));
    });
}

#[test]
fn a_sum_is_never_half_of_one_and_half_of_another() {
    static GRAPHS: Graphs = Graphs::new();
    let parts = |ns| Some(vec![part(8, 0, Some(known(Class::Compute, ns as u32, ns)))]);
    GRAPHS.handle_made(exec(1), parts(1));
    std::thread::scope(|scope| {
        scope.spawn(|| (1..20_000).for_each(|ns| GRAPHS.handle_updated(exec(1), parts(ns))));
        for _ in 0..20_000 {
            let cost = GRAPHS.cost(exec(1));
            if cost != Cost::UNKNOWN {
                assert_eq!(u64::from(cost.kernel.sm_needed), cost.kernel.expected_ns);
            }
        }
    });
}
