// Command bench measures Farol, on a machine that does nothing else:
//
//	go run . table -only W1,S
//	go run . queue -only farol,river -workloads steady -dur 5s
//	go run . scale -workers 1,16 -bags small -dur 10s
//	go run . lists -scale 0.01 -dur 10s
//
// The package of each says what it measures; -h prints its flags. It is run in the folder bench
// and starts every server itself, on loopback ports. Parts of Farol are measured by
//
//	go test -bench . -benchtime 1x
package main

import (
	"github.com/farol-preservation/farol/bench/lists"
	"github.com/farol-preservation/farol/bench/queue"
	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/bench/scale"
	"github.com/farol-preservation/farol/bench/table"
)

func main() {
	rig.Main(map[string]rig.Program{"table": table.Run, "queue": queue.Run, "scale": scale.Run, "lists": lists.Run})
}
