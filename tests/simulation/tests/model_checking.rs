//! Model checking: every order of everything, for one and two transactions.

use ratified_simulation::model_checking::Space;

fn must_hold(space: Space, at_least: usize) {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let found = space.search(threads);
    println!("{} states", found.states);
    assert_eq!(found.broken, None);
    assert_eq!(found.unreached, Vec::<String>::new(), "the search would prove nothing");
    assert!(found.states >= at_least, "{} states: the space has shrunk", found.states);
}

#[test]
fn one_prepared_transaction_holds_in_every_order() {
    must_hold(Space::prepared(), 100_000);
}

#[test]
fn two_transactions_hold_in_every_order() {
    must_hold(Space::two(), 100_000);
}
