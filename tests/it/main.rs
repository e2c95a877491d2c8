mod claim;
mod enqueue;
mod fencing;
mod leases;
mod sandbox;
mod states;
mod traps;
