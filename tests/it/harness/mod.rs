mod bench;
mod cases;
mod new;
mod profile;
mod programs;
mod verdict;
