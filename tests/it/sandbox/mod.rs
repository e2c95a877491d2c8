mod cli;
mod commands;
mod limits;
mod modules;
mod stops;
mod traps;
