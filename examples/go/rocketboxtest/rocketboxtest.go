// Package rocketboxtest gives tests a real broker and name server in a third of a second:
//
//	box := rocketboxtest.Start(t)
//	p, err := rocketmq.NewProducer(producer.WithNameServer(box.NameServer))
//
// It is `rocketbox serve --test`, with ports and a directory of its own; the variable ROCKETBOX names another command. It
// ends with its standard input, so with this process, however that ends.
package rocketboxtest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Box is a server. Its addresses are "host:port".
type Box struct {
	NameServer []string
	Broker     string
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Box {
	t.Helper()
	command := os.Getenv("ROCKETBOX")
	if command == "" {
		command = "rocketbox"
	}
	server := exec.Command(command, "serve", "--test")
	server.Stderr = os.Stderr
	lease, err := server.StdinPipe()
	check(t, err)
	out, err := server.StdoutPipe()
	check(t, err)
	check(t, server.Start())
	t.Cleanup(func() { end(server, lease) })

	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s serve --test did not start: %v", command, err)
	}
	var ready struct{ Namesrv, Broker string }
	check(t, json.Unmarshal(line, &ready))
	return &Box{NameServer: []string{ready.Namesrv}, Broker: ready.Broker}
}

func end(server *exec.Cmd, lease io.Closer) {
	lease.Close()
	late := time.AfterFunc(30*time.Second, func() { server.Process.Kill() })
	defer late.Stop()
	server.Wait()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
