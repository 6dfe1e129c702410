package main

import (
	"crypto/ed25519"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"
)

// issuer is a program that publishes a key, and writes tokens that are signed with it:
// for each argument TYPE:ID a file ID.token, of the issuer https://TYPE.example.com for
// https://gateway.example.com. An argument TYPE:ID,CLAIM=VALUE,… has more claims, and
// its file is called CLAIM=VALUE.token after the last of them.
func issuer() {
	_, key, err := ed25519.GenerateKey(nil)
	check(err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: "k1"}}, (&jose.SignerOptions{}).WithType("at+jwt"))
	check(err)
	for _, of := range os.Args[1:] {
		parts := strings.Split(of, ",")
		kind, id, _ := strings.Cut(parts[0], ":")
		claims, name := map[string]any{"iss": "https://" + kind + ".example.com", "sub": id, "aud": "https://gateway.example.com", "exp": time.Now().Add(time.Hour).Unix()}, id
		for _, more := range parts[1:] {
			claim, value, _ := strings.Cut(more, "=")
			name = more
			if claims[claim] = value; claim == "act" {
				claims[claim] = map[string]string{"sub": value}
			}
		}
		token, err := jwt.Signed(signer).Claims(claims).Serialize()
		check(err)
		check(os.WriteFile(name+".token", []byte(token), 0o600))
	}
	keys, err := json.Marshal(map[string]any{"keys": []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "EdDSA", Use: "sig"}}})
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Fprintf(os.Stderr, "listening on http://%s\n", listener.Addr())
	check(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(keys) })))
}

// authenticate gives a request the token of the CALLER in the environment, if any.
func authenticate(r *http.Request) {
	caller := os.Getenv("CALLER")
	if caller == "" {
		return
	}
	token, err := os.ReadFile(caller + ".token")
	check(err)
	r.Header.Set("Authorization", "Bearer "+string(token))
}
