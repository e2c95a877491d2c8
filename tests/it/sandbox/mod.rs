mod bombs;
mod cli;
mod commands;
mod limits;
mod modules;
mod sleeps;
mod stops;
mod traps;
