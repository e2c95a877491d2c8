mod bench;
mod cases;
mod new;
mod profile;
mod programs;
mod replay;
mod verdict;
