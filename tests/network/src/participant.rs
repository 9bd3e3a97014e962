//! A participant that pulls its decisions, applies them to a disk of its own and acknowledges.

use std::{collections::BTreeMap, time::Duration};

use ratified::{ParticipantName, protocol::Decision};

use crate::{
    answers::Key,
    mistake::Mistake,
    world::{Host, World, client},
};
use ratified::Outcome;

/// What participants have applied, by participant and transaction.
pub type Applied = BTreeMap<(Host, Key), Outcome>;

/// Pulls for ever.
pub async fn run(world: World, host: Host) {
    let coordinator = client(&world, host);
    let name: ParticipantName = host.parse().expect("a name");
    let mut after = None;
    loop {
        let answer = coordinator.decisions(&name, Some(Duration::from_millis(700)), after.as_deref()).await;
        let Ok(answer) = answer else {
            world.linger(100).await;
            continue;
        };
        let mut is_complete = true;
        for decision in answer.decisions {
            let outcome = decision.outcome.known().expect("an outcome of this version");
            if world.mischief(10) {
                world.count("applies failed");
                is_complete = false;
                continue;
            }
            let acknowledges_first = world.mistake == Mistake::AcksBeforeApplied;
            if !acknowledges_first {
                apply(&world, host, &decision, outcome).await;
            }
            die_now_and_then(&world, host).await;
            let acked = coordinator.ack(&decision.client_name, decision.txn_id, &name, outcome).await;
            if let Err(error) = acked {
                world.violate(format!("{host} may not acknowledge {}: {error}", decision.txn_id));
            }
            die_now_and_then(&world, host).await;
            if acknowledges_first {
                apply(&world, host, &decision, outcome).await;
            }
        }
        after = is_complete.then_some(answer.cursor);
    }
}

/// A crash between applying and acknowledging, or right behind both.
async fn die_now_and_then(world: &World, host: Host) {
    if world.mischief(20) {
        world.count("participants killed");
        world.ask_kill(host);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn apply(world: &World, host: Host, decision: &Decision, outcome: Outcome) {
    world.linger(60).await;
    let key = (decision.client_name.clone(), decision.txn_id);
    let before = world.answers().applied.insert((host, key), outcome);
    world.note(format!("{host} applies {outcome:?} of {}", world.name(decision.txn_id)));
    if before.is_some_and(|before| before != outcome) {
        world.violate(format!("{host} heard both outcomes of {}", decision.txn_id));
    }
}
