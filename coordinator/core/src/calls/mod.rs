//! The calls of the protocol, one file for each kind.

mod batch;
mod begin;
mod decide;
mod decisions;
mod finish;
mod listing;
mod lookup;
mod open;
mod operator;
mod register;
