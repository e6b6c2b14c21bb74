package main

import (
	"encoding/json"
)

// model is a size of GPT, in the words of gpt.py.
type model struct {
	Width      int `json:"WIDTH"`
	Blocks     int `json:"BLOCKS"`
	Heads      int `json:"HEADS"`
	Characters int `json:"CHARACTERS"`
}

// The sizes of GPT-2, with a head of its own where GPT-2 has that of the embedding: 1.8 and 4.5 GiB with Adam.
var models = map[string]model{
	"10M":  {256, 6, 4, 8192},
	"21M":  {512, 4, 8, 8192},
	"124M": {768, 12, 12, 50257},
	"355M": {1024, 24, 16, 50257},
}

const (
	contextTokens = 32 // tokens that a sample predicts: a step is to end in seconds, on one core
	microBatch    = 2  // of elastic.py
)

// constants are those of gpt.py, for a batch of which each of so many nodes, and one more, trains a micro-batch.
func (m model) constants(nodes int) string {
	text, err := json.Marshal(struct {
		model
		Context int `json:"CONTEXT"`
		Batch   int `json:"BATCH"`
	}{m, contextTokens, microBatch * (nodes + 1)})
	if err != nil {
		panic(err) // plain numbers
	}
	return string(text)
}
