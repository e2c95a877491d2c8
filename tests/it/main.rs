mod claim;
mod enqueue;
mod fencing;
mod sandbox;
mod states;
