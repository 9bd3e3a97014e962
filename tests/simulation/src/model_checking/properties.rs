//! Atomicity, durability, idempotence and fencing, as properties of the search.

use ratified_protocol::{Outcome, TxnId, TxnState};
use stateright::Property;

use super::{
    Space, State,
    state::{Level, Told},
};

/// Properties that a step or an answer can break; each is an `always` of its own.
const AT_STEPS: &[&str] = &[
    "the engine's own invariants hold",
    "only begin creates, and never again",
    "open and sweeps never end a PREPARED transaction",
    "nothing of a smaller epoch takes effect",
    "terminal only when every participant acknowledged",
    "a durable decision is never contradicted",
    "recovering twice is recovering once",
    "what was written can be loaded",
    "what is told is durable",
    "NOT_FOUND is never told of what was acknowledged",
    "EXPIRED is told only below a durable watermark",
    "an epoch is given to one incarnation",
];

/// Every property.
pub fn all() -> Vec<Property<Space>> {
    let mut all = vec![
        Property::<Space>::always("no participant hears both outcomes", |_, state: &State| {
            !state.heard.iter().any(|(name, id, outcome)| {
                Outcome::ALL.iter().any(|other| other != outcome && state.heard.contains(&(name.clone(), *id, *other)))
            })
        }),
        Property::<Space>::always("all answers about one id agree", |space: &Space, state: &State| {
            space.ids.iter().all(|id| state.told.get(id) != Some(&Level::Torn))
        }),
        Property::<Space>::sometimes("a commit is told", |space: &Space, state: &State| {
            space.ids.iter().any(|id| state.told.get(id) == Some(&Level::Terminal(Outcome::Committed)))
        }),
        Property::<Space>::sometimes("an abort is told", |space: &Space, state: &State| {
            space.ids.iter().any(|id| state.told.get(id) == Some(&Level::Terminal(Outcome::Aborted)))
        }),
        Property::<Space>::sometimes("an outcome expires", |space: &Space, state: &State| {
            space.ids.iter().any(|id| state.told.get(id) == Some(&Level::Expired))
        }),
    ];
    all.extend(AT_STEPS.iter().map(|name| always(name)));
    all
}

/// A property that is looked after at the steps. Stateright takes plain functions, so the name cannot be captured:
/// there is one function per name.
fn always(name: &'static str) -> Property<Space> {
    macro_rules! by_index {
        ($($index:literal),*) => {
            match AT_STEPS.iter().position(|n| *n == name) {
                $(Some($index) => Property::<Space>::always(name, |_, state: &State| holds(state, $index)),)*
                _ => Property::<Space>::always(name, |_, _| false),
            }
        };
    }
    by_index!(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
}

fn holds(state: &State, index: usize) -> bool {
    state.wrong.as_ref().is_none_or(|(name, _)| *name != AT_STEPS[index])
}

/// Judges an answer as it leaves.
pub fn at_telling(state: &mut State, told: Told) {
    match told {
        Told::Began(id) => {
            let kept = state.durable_state(id).is_some() || has_ended(state, id);
            durable(state, kept, told);
        }
        Told::Prepared(id) => {
            let kept = state.durable_state(id).is_some_and(|s| s != TxnState::Open) || has_ended(state, id);
            durable(state, kept, told);
        }
        Told::Outcome(id, outcome) => {
            let kept = state.durable_outcome(id) == Some(outcome) || state.is_evicted(id);
            durable(state, kept, told);
        }
        Told::Terminal(id, _) => {
            let live = state.durable_state(id).is_some();
            durable(state, !live, told);
        }
        Told::NotFound(id) => {
            if state.told.contains_key(&id) {
                state.wrong("NOT_FOUND is never told of what was acknowledged", || format!("{id}"));
            }
        }
        Told::Expired(id) => {
            if !state.is_evicted(id) {
                state.wrong("EXPIRED is told only below a durable watermark", || format!("{id}"));
            }
        }
        Told::Opened(incarnation, epoch) => {
            if state.epochs.get(&epoch).is_some_and(|holder| *holder != incarnation) {
                state.wrong("an epoch is given to one incarnation", || format!("{epoch}"));
            }
        }
        Told::Fenced => {}
    }
}

fn has_ended(state: &State, id: TxnId) -> bool {
    state.durable_outcome(id).is_some() || state.is_evicted(id)
}

fn durable(state: &mut State, kept: bool, told: Told) {
    if !kept {
        state.wrong("what is told is durable", || format!("{told:?}"));
    }
}
