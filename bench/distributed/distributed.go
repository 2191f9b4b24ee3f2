// Package distributed measures servers that share a database and a bucket beside one with a data
// folder, with the latency of a network between them and their stores.
//
// All of it is a benchmark, BenchmarkJobs, which `make bench-distributed` runs; bench/README.md
// explains its table. Its files, in the order in which to read them: jobs_test.go lists what is
// measured and what each job may cost, world_test.go starts stores and servers, network_test.go
// delays them, client_test.go speaks to them, report_test.go prints the table.
package distributed
