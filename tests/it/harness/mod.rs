mod bench;
mod cases;
mod profile;
mod programs;
mod verdict;
