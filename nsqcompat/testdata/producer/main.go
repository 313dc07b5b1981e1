// Command producer shows the data race of go-nsq's Producer (v1.1.0) when it connects
// again. Run it with: go run -race ./nsqcompat/testdata/producer
//
// It publishes to a server that closes each connection after one message, as an nsqd
// does that is restarted. The router of the lost connection reads Producer.conn in its
// last log line, after it has left the wait group that close waits for; by then connect
// may write the field.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"

	"github.com/nsqio/go-nsq"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go serve(listener)
	producer, err := nsq.NewProducer(listener.Addr().String(), nsq.NewConfig())
	if err != nil {
		log.Fatal(err)
	}
	producer.SetLoggerLevel(nsq.LogLevelMax)
	published := 0
	for published < 200 {
		if producer.Publish("topic", []byte("1")) == nil {
			published++
		}
	}
	fmt.Fprintln(os.Stdout, published, "messages published, each over a connection of its own")
}

// serve answers OK to IDENTIFY and to one PUB on each connection, and closes it.
func serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			r := bufio.NewReader(conn)
			if _, err := io.CopyN(io.Discard, r, int64(len(nsq.MagicV2))); err != nil {
				return
			}
			for answers := 0; answers < 2; {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "NOP") {
					continue
				}
				var size int32
				if binary.Read(r, binary.BigEndian, &size) != nil {
					return
				}
				if _, err := io.CopyN(io.Discard, r, int64(size)); err != nil {
					return
				}
				frame := append(binary.BigEndian.AppendUint32(nil, 6), 0, 0, 0, 0)
				if _, err := conn.Write(append(frame, "OK"...)); err != nil {
					return
				}
				answers++
			}
		}()
	}
}
