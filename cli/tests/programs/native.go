// native [cuda | default | notified]: a Go program. With `cuda` it uses CUDA through C; without an
// argument it uses only goroutines and Go's signals; else it has work in flight, prints "ready",
// and waits for SIGTERM or SIGINT: with Go's default action, or through a channel.
package main

/*
#cgo LDFLAGS: -ldl -lpthread
#include "native_work.h"
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func beAskedToEnd(isNotified bool) {
	signals := make(chan os.Signal, 1)
	if isNotified {
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	}
	C.leave_in_flight()
	fmt.Println("ready")
	fmt.Println("asked by", <-signals)
	C.finish_work()
	os.Exit(7)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] != "cuda" {
		beAskedToEnd(os.Args[1] == "notified")
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	sums := make(chan int)
	for i := 0; i < 8; i++ {
		go func(n int) { sums <- n * n }(i)
	}
	sum := 0
	for i := 0; i < 8; i++ {
		sum += <-sums
	}
	fmt.Println("sum", sum)
	if len(os.Args) > 1 {
		fmt.Println("launches", C.use_cuda())
	}
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println("signal", <-signals)
	output, _ := exec.Command("echo", "child").Output()
	fmt.Print(string(output))
	os.Exit(9)
}
