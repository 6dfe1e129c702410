// Mcpx-room is an example of a policy enforcement point: a room in which agents and people call each
// other's tools over WebSocket, in envelopes of mcp-x/v0. It asks the PDP about each message, and keeps
// nothing but calls that wait.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcpx-room:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mcpx-room", flag.ExitOnError)
	file := flags.String("config", "room.yaml", "configuration `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, err := readConfig(*file)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store, err := openStore(cfg.State)
	if err != nil {
		return err
	}
	defer store.db.Close()
	room, err := newRoom(ctx, cfg, newGate(cfg, log), store, log)
	if err != nil {
		return err
	}
	return serve(ctx, cfg.Listen, room)
}

// serve serves the topics of a room until ctx ends.
func serve(ctx context.Context, address string, room *Room) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("GET /topics/{topic}", room)
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Fprintf(os.Stderr, "listening on ws://%s/topics/\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
