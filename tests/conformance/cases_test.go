package main

// tiny is a case per kind whose answer was worked out by hand: input and expected.
var tiny = map[string][2]string{
	"assignment": {`{"cost": [[1, 5], [2, 9]]}`, `{"min_total": 7, "min_max_edge": 5}`},
	"migration": {
		`{"layer_bytes": {"all": 10, "count": 4}, "survivor_layers": [[0, 2], [2, 4], null], "new_slot_layers": [[2, 4], [0, 2], [0, 1]]}`,
		`{"min_total_layers_fetched": 1, "min_total_bytes_fetched": 10, "min_max_bytes_per_node": 10,
		  "min_total_bytes_given_min_max": 10, "total_layers_if_kept_in_listed_order": 5, "layers_without_any_survivor": []}`,
	},
	"shards": {
		`{"start_delay_ns": [10, 0], "per_shard_ns": [10, 30], "shards": 1}`,
		`{"min_makespan_ns_all_used": null, "min_makespan_ns_some_unused": 20, "fluid_lower_bound_ns": 15.0}`,
	},
	"shard_chain": {
		`{"total_elements": 8, "chain_elements": [1, 2, 4, 8], "start_delay_ns": [0, 0], "per_element_ns": [1, 1]}`,
		`{"theta_ns_per_size": [4, 4, 4, null], "fluid_lower_bound_ns": 4.0, "largest_size_within_1_percent_of_fluid": 4}`,
	},
	"fetch": {
		`{"layer_bytes": [100], "egress_bytes_per_s": [10, 10, 10], "ingress_bytes_per_s": [10, 10, 100],
		  "holders_of_layer": [[0, 1]], "needs": [{"node": 2, "layer": 0}]}`,
		`{"optimal_seconds": 5.0, "ingress_lower_bound_seconds": 1.0}`,
	},
	"colouring": {
		`{"layers": 4, "layer_bytes": [1, 1, 1, 1], "pipelines_stage_sizes": [[2, 2], [1, 3]]}`,
		`{"min_rounds_layers": 3, "segments": [[0, 1], [1, 2], [2, 4]], "min_rounds_segments": 2, "max_bytes_on_one_device": 3,
		  "min_makespan_bytes_unsplit_no_barrier": 3, "min_sum_of_round_maxima_bytes": 3}`,
	},
	"colouring_general": {
		`{"items": 3, "device_items": [[0, 2], [0, 1], [1, 2]]}`, `{"chromatic_number": 3, "largest_device": 2}`,
	},
	"pipeline_1f1b": {
		`{"forward_us": [1, 1], "backward_us": [2, 2], "micro_batches": 2, "forward_comm_us": [0], "backward_comm_us": [0]}`,
		`{"makespan_us": 9, "stage_finish_us": [9, 7], "peak_in_flight_activations": [2, 1]}`,
	},
	"open_tsp": {`{"weight": [[0, 3, 9], [3, 0, 4], [9, 4, 0]]}`, `{"min_path": 7}`},
	"dtfm_cost": {
		`{"delay_s": [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]],
		  "bandwidth_gbps": [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]],
		  "c_dp_gigabit": 2, "c_pp_gigabit": 1, "groups": [[0, 2], [1, 3]]}`,
		`{"datap_s": 4.0, "pipelinep_s": 2.0, "total_s": 6.0, "optimal_total_s": 6.0}`,
	},
	"dtfm_best": {
		`{"delay_s": [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]],
		  "bandwidth_gbps": [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]],
		  "c_dp_gigabit": 2, "c_pp_gigabit": 1, "group_size": 2}`,
		`{"total_s": 6.0, "datap_s": 2.0, "certified_optimal": true, "how": "by hand"}`,
	},
	"memory": {
		`{"layers_per_stage": [2, 1], "micro_batches": 3, "param_bytes": 1, "optimizer_bytes": 2, "gradient_bytes": 3,
		  "activation_bytes": 10, "device_bytes": 50}`,
		`{"peak_bytes_per_stage": [52, 16], "fits": false}`,
	},
	"reroute": {
		`{"pipelines": 3, "stages": 2, "micro_batches_per_pipeline": 3, "failed_workers_per_stage": [1, 0], "forward_us": 1, "backward_us": 2}`,
		`{"recoverable": true, "step_us_whole_micro_batches": 18, "step_us_fractional": 16.5, "symmetric_step_us_without_failures": 12}`,
	},
	"objective": {
		`{"global_batch_samples": 10, "time_between_faults_s": 100.0, "candidates": [
		  {"name": "stay", "step_s": 1, "transition_s": 0}, {"name": "move", "step_s": 0.5, "transition_s": 60}]}`,
		`{"paper_objective_samples_per_s": [10.0, 8.0], "best_by_paper": "stay",
		  "memoryless_objective_samples_per_s": [10.0, 10.976232721880528], "best_by_memoryless": "move"}`,
	},
	"batch_distribution": {
		`{"global_micro_batches": 3, "pipeline_lengths": [1, 2], "layers": 2, "forward_us_per_layer": 1, "backward_us_per_layer": 1,
		  "layer_split": "even, leftover layers to the earliest stages", "comm_us": 0}`,
		`{"paper_rule": [1, 2], "paper_rule_step_us": 6, "optimal_step_us": 6}`,
	},
	"layer_split": {
		`{"stages": 2, "forward_us": [1, 1, 1], "backward_us": [1, 1, 1], "static_mem": [1, 1, 1], "activation_mem": [0, 0, 0],
		  "mem_capacity": 1, "micro_batches": 2, "comm_us": 0}`,
		`{"best_us_any_contiguous_split_that_fits": null, "best_us_even_family_that_fits": null, "best_us_ignoring_memory": 8}`,
	},
	"plan_search": {
		`{"nodes": 2, "layers": 2, "global_micro_batches": 2, "forward_us_per_layer": 1, "backward_us_per_layer": 1, "comm_us": 0,
		  "dp_range": [1, 2], "pp_range": [1, 2], "static_mem_per_layer": 1, "activation_mem_per_layer": 0, "mem_capacity": 10,
		  "split_space": "even (floor/ceil), leftover layers anywhere"}`,
		`{"best_step_us_all_nodes_used": 4, "best_step_us_idle_nodes_allowed": 4, "one_best_set_of_pipeline_lengths": [1, 1]}`,
	},
	"elastic_tokens": {
		`{"total_tokens": 9, "phases": [{"world_size": 2, "tokens_per_rank_and_step": 2, "steps_requested": 1},
		  {"world_size": 3, "tokens_per_rank_and_step": 1, "steps_requested": 5}]}`,
		`{"blocks_in_order_step_then_rank": [[0, 2], [2, 4], [4, 5], [5, 6], [6, 7]], "cursor_at_end": 7}`,
	},
	"elastic_lr": {`{"lr_old": 0.1, "batch_old": 2, "batch_new": 3}`, `{"lr_new": 0.15}`},
}
