// A schema registry in memory (franz-go's srfake) on a free port of the loopback interface.
//
// The first line of output is its URL; then each request is a line of JSON. It ends with its input.
//
//	srfake [-authorization "Basic ..."]
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

type request struct {
	Method string `json:"method"`
	URI    string `json:"uri"`
	Body   string `json:"body"`
}

func main() {
	authorization := flag.String("authorization", "", "the header that each request must have")
	flag.Parse()
	var options []srfake.Option
	if *authorization != "" {
		options = append(options, srfake.WithAuth(*authorization))
	}
	registry := srfake.NewRegistry(options...)

	var mutex sync.Mutex
	out := json.NewEncoder(os.Stdout)
	registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mutex.Lock()
		defer mutex.Unlock()
		_ = out.Encode(request{r.Method, r.RequestURI, string(body)})
		return false
	})

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, http.Serve(listener, registry.Handler()))
	os.Exit(1)
}
