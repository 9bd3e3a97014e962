//! The runtime's decisions, without I/O: what `open` does with what it finds, what is committed at which notification,
//! what is refused and in which order. The runtime carries out what they say; a simulation may drive them with nothing
//! real around them.

mod barriers;
mod open;

pub use self::{
    barriers::Barriers,
    open::{
        Command, Findings, Found, Key, Labelled, OwnedClient, Rules, Share, check_restore, check_sink, is_given_up,
        plan,
    },
};
