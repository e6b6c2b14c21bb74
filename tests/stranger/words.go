// Package stranger is a trainer written by somebody who has read the subjects and payloads of Reknit and uses none of
// its code: a NATS client and a JSON library.
package stranger

import "encoding/json"

// The fields of the payloads that a stranger reads; it ignores the rest.

type envelope struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
	Dataref string          `json:"dataref"` // digest of data over 64 KiB, which travels apart
}

type member struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
}

type layers struct {
	First int `json:"first"`
	End   int `json:"end"`
}

type opening struct {
	Negotiation string   `json:"negotiation"`
	Generation  uint64   `json:"generation"`
	Members     []member `json:"members"`
	Abandon     bool     `json:"abandon"`
	Begins      bool     `json:"begins"`
}

type plan struct {
	Generation uint64   `json:"generation"`
	ResumeStep uint64   `json:"resumeStep"`
	Nodes      []member `json:"nodes"`
	Pipelines  []struct {
		Stages []struct {
			Node   string `json:"node"`
			Layers layers `json:"layers"`
		} `json:"stages"`
	} `json:"pipelines"`
	Migration struct {
		Transfers  []transfer `json:"transfers"`
		ShardBytes int        `json:"shardBytes"`
	} `json:"migration"`
}

type transfer struct {
	Layer   int    `json:"unit"`
	To      string `json:"to"`
	Sources []struct {
		Node   string `json:"node"`
		Shards layers `json:"shards"`
	} `json:"sources"`
}

type schedule struct {
	Negotiation string `json:"negotiation"`
	StopStep    uint64 `json:"stopStep"`
	Plan        plan   `json:"plan"`
}

type offer struct {
	Negotiation string `json:"negotiation"`
	Node        string `json:"node"`
	Layer       int    `json:"unit"`
	Step        uint64 `json:"step"`
	Digest      string `json:"digest"`
	Bytes       int    `json:"bytes"`
	Parts       []part `json:"parts"`
}

type part struct {
	Digest string `json:"digest"`
	First  int    `json:"first"`
	End    int    `json:"end"`
}

type abortion struct {
	Negotiation string `json:"negotiation"`
	Superseded  bool   `json:"superseded"`
}

type refusal struct {
	Refused     string `json:"refused"`
	Incarnation string `json:"incarnation"`
	Reason      string `json:"reason"`
	Astray      bool   `json:"astray"`
}

type pulse struct {
	Node        string  `json:"node"`
	Incarnation string  `json:"incarnation"`
	Number      uint64  `json:"number"`
	Generation  uint64  `json:"generation"`
	Step        uint64  `json:"step"`
	StepSeconds float64 `json:"stepSeconds"`
	Loss        float64 `json:"loss"`
	Left        bool    `json:"left,omitempty"`
}

// place returns the layers that a node trains under the plan.
func (p *plan) place(node string) (place layers, ok bool) {
	for _, pipeline := range p.Pipelines {
		for _, stage := range pipeline.Stages {
			if stage.Node == node {
				return stage.Layers, true
			}
		}
	}
	return layers{}, false
}

func names(members []member, node, incarnation string) bool {
	for _, member := range members {
		if member.Node == node && member.Incarnation == incarnation {
			return true
		}
	}
	return false
}
