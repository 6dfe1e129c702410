package console

import (
	"net/http"
	"net/url"
)

// live shows new entries as they come.
func (v *visit) live() error {
	return v.show(http.StatusOK, "live", "Live", v.r.URL.Query().Get("tenant"))
}

func (v *visit) liveStream() error {
	path := "/admin/v1/log/stream"
	if tenant := v.r.URL.Query().Get("tenant"); tenant != "" {
		path += "?" + url.Values{"tenant": {tenant}}.Encode()
	}
	return v.stream(path)
}
