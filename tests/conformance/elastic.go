package main

import "fmt"

type elasticTokensInput struct {
	Tokens int `json:"total_tokens"`
	Phases []struct {
		Workers int `json:"world_size"`
		Each    int `json:"tokens_per_rank_and_step"`
		Steps   int `json:"steps_requested"`
	}
}

// solveElasticTokens reads with one cursor for all. The reference trainer knows no ranks: its cursor is the plan's
// consumedSamples, and what this shows is that such a cursor skips and repeats nothing when the number of workers
// changes.
func solveElasticTokens(in elasticTokensInput) (answer, error) {
	blocks, cursor := [][2]int{}, 0
	for i, phase := range in.Phases {
		if phase.Workers < 1 || phase.Each < 1 {
			return nil, fmt.Errorf("phases[%d]: expected at least a worker and a token, got %+v", i, phase)
		}
		for step := 0; step < phase.Steps && cursor+phase.Workers*phase.Each <= in.Tokens; step++ {
			for range phase.Workers {
				blocks = append(blocks, [2]int{cursor, cursor + phase.Each})
				cursor += phase.Each
			}
		}
	}
	return answer{"blocks_in_order_step_then_rank": blocks, "cursor_at_end": cursor}, nil
}

type elasticRateInput struct {
	Rate     float64 `json:"lr_old"`
	BatchOld float64 `json:"batch_old"`
	BatchNew float64 `json:"batch_new"`
}

// solveElasticRate is the linear scaling rule.
func solveElasticRate(in elasticRateInput) (answer, error) {
	if in.BatchOld <= 0 {
		return nil, fmt.Errorf("batch_old: expected more than 0, got %v", in.BatchOld)
	}
	return answer{"lr_new": in.Rate * in.BatchNew / in.BatchOld}, nil
}
