package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

//go:embed assets
var assetFiles embed.FS

// assets are the files that pages load. Their URLs have a digest of the content, so browsers keep
// them for ever.
type assets struct {
	urls    map[string]string // by name of the file
	content map[string][]byte // by name in the URL
}

func loadAssets() (assets, error) {
	a := assets{make(map[string]string), make(map[string][]byte)}
	verify := a.add("verify.mjs", decisionlog.VerifyModule)
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return a, fmt.Errorf("read assets: %w", err)
	}
	for _, file := range files {
		text, err := assetFiles.ReadFile("assets/" + file.Name())
		if err != nil {
			return a, fmt.Errorf("read assets: %w", err)
		}
		a.add(file.Name(), bytes.ReplaceAll(text, []byte(`"./verify.mjs"`), []byte(`"./`+verify+`"`)))
	}
	return a, nil
}

// add adds a file, and returns its name in URLs.
func (a *assets) add(name string, text []byte) string {
	digest := sha256.Sum256(text)
	ext := path.Ext(name)
	hashed := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(digest[:6]) + ext
	a.urls[name], a.content[hashed] = "/assets/"+hashed, text
	return hashed
}

// url returns the URL of a file for templates.
func (a *assets) url(name string) (string, error) {
	url, ok := a.urls[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return url, nil
}

// serveAsset serves a file to whoever asks: it has nothing of anybody.
func (c *Console) serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, ok := c.assets.content[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if path.Ext(name) == ".mjs" {
		kind = "text/javascript; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(text) // the browser may have gone
}
