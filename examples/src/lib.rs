//! What the example jobs are made of; the jobs themselves are the binaries.

pub mod quakes;
