// native: a Go program; with any argument it uses CUDA through C, else only goroutines and signals of Go's own.
package main

/*
#cgo LDFLAGS: -ldl -lpthread
#include "cuda_min.h"

static unsigned long use_cuda(void) {
    struct work work;
    open_door("dlsym");
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < 12; i++) work_launch(&work, NULL);
    work_check(&work);
    say_asked();
    return atomic_load(&asked.launches);
}
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
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
