package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3bolt"
)

// store is an S3 server, as a process of its own that can be killed. An object that it acknowledged is in its file.
type store struct {
	directory string
	address   string
	process   *exec.Cmd
	ended     chan struct{} // closed when the process has
}

const bucket = "snapshots"

// start runs this command as a server, and returns when it accepts connections. It dies in the middle of one of the
// objects that are put; zero: of none.
func (s *store) start(dies int) error {
	s.process = exec.Command(os.Args[0], "-store", s.directory, "-listen", s.address, "-dies", fmt.Sprint(dies))
	s.process.Stderr = os.Stderr
	says, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(says).ReadString('\n') // ends with the process, if not before
	process, ended := s.process, make(chan struct{})
	s.ended = ended
	go func() {
		_ = process.Wait() // it is killed in the end, by itself or by this drill
		close(ended)
	}()
	if err != nil || line != listening {
		return fmt.Errorf("store: expected it to listen on %s, got %q: %w", s.address, line, err)
	}
	return nil
}

// listening is what a store says once it accepts connections.
const listening = "listening\n"

func (s *store) close() {
	if s.process != nil {
		_ = s.process.Process.Kill() // it may have died already
	}
}

// settings are the environment of who writes to the store.
func (s *store) settings() map[string]string {
	return map[string]string{
		"REKNIT_SNAPSHOT_BUCKET": fmt.Sprintf("s3://%s?endpoint=http://%s&use_path_style=true&region=none", bucket, s.address),
		"AWS_ACCESS_KEY_ID":      "drill", "AWS_SECRET_ACCESS_KEY": "drill",
	}
}

// serveStore serves a bucket whose objects lie in a file of the directory. It kills its own process when half of the
// n-th object that is put has come; zero: never.
func serveStore(directory, address string, n int) error {
	backend, err := s3bolt.NewFile(filepath.Join(directory, "store.bolt"))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Print(listening)
	s3 := gofakes3.New(backend, gofakes3.WithAutoBucket(true)).Server()
	puts := atomic.Int64{}
	return http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPut && puts.Add(1) == int64(n) {
			_, half := io.CopyN(io.Discard, request.Body, request.ContentLength/2)
			_ = errors.Join(half, syscall.Kill(os.Getpid(), syscall.SIGKILL)) // it is dead by now
		}
		s3.ServeHTTP(response, request)
	}))
}
