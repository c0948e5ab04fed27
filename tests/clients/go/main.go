// The Go client under remote control: one JSON command a line on stdin, one JSON answer or event a line on stdout.
// The same commands as the Java agent beside it, as far as the library has them. Ends when stdin ends.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
)

type command func(args arguments) (interface{}, error)

var commands = map[string]command{}

var (
	outLock sync.Mutex
	out     = bufio.NewWriter(os.Stdout)
)

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // clients that were not stopped go with the process
		}
		args := arguments{}
		if err := json.Unmarshal(line, &args); err != nil {
			fmt.Fprintln(os.Stderr, "not a command:", err)
			os.Exit(2)
		}
		go answer(args)
	}
}

func answer(args arguments) {
	reply := map[string]interface{}{"id": args["id"]}
	defer func() {
		if problem := recover(); problem != nil {
			reply["error"] = describe(fmt.Errorf("panic: %v", problem))
		}
		write(reply)
	}()
	run, known := commands[args.text("do", "")]
	if !known {
		panic("no such command: " + args.text("do", ""))
	}
	result, err := run(args)
	if err != nil {
		reply["error"] = describe(err)
	} else if result == nil {
		reply["ok"] = map[string]interface{}{}
	} else {
		reply["ok"] = result
	}
}

var codeInText = regexp.MustCompile(`CODE: (\d+)`)

// describe gives the response code too when the library put it in its text.
func describe(err error) map[string]interface{} {
	var code interface{}
	if found := codeInText.FindStringSubmatch(err.Error()); found != nil {
		code, _ = strconv.Atoi(found[1])
	}
	return map[string]interface{}{"type": fmt.Sprintf("%T", err), "code": code, "message": err.Error(), "stack": ""}
}

func event(name string, of string, content map[string]interface{}) {
	content["event"] = name
	content["of"] = of
	write(content)
}

func write(line map[string]interface{}) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	outLock.Lock()
	defer outLock.Unlock()
	out.Write(text)
	out.WriteByte('\n')
	out.Flush()
}
