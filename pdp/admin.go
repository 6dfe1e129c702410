package pdp

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Paths of the admin listener that the command line uses.
const (
	PathLogExport     = "/admin/v1/log/export"
	PathLogCheckpoint = "/admin/v1/log/checkpoint"
)

// adminRoutes of the admin listener.
func adminRoutes(e *echo.Echo, engine *evaluation.Engine, log *decisionlog.Log) {
	e.GET("/livez", serveBlob(echo.MIMETextPlain, []byte("ok\n")))
	e.GET("/readyz", serveReady(engine, log))
	e.GET(PathLogExport, serveExport(log))
	e.GET(PathLogCheckpoint, serveCheckpoint(log))
}

// serveReady says whether decisions can be made and recorded.
func serveReady(engine *evaluation.Engine, log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error {
		s := engine.Snapshot()
		switch {
		case s == nil:
			return c.String(http.StatusServiceUnavailable, evaluation.ErrNoSnapshot.Error()+"\n")
		case log.Err() != nil:
			return c.String(http.StatusServiceUnavailable, "the decision log has failed\n")
		case !c.QueryParams().Has("verbose"):
			return c.String(http.StatusOK, "ok\n")
		}
		policies, entities := s.Size()
		return c.String(http.StatusOK, fmt.Sprintf("ok\nrevision %s\npolicies %d\nentities %d\nlog entries %d\n",
			s.Revision(), policies, entities, log.Head().Size))
	}
}

// serveExport streams the log's entries from ?from= up to but without ?until=,
// one JSON object a line.
func serveExport(log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error {
		size := log.Head().Size
		from, err := indexParam(c, "from", 0)
		if err != nil {
			return err
		}
		until, err := indexParam(c, "until", size)
		if err != nil {
			return err
		}
		c.Response().Header().Set(echo.HeaderContentType, "application/jsonl")
		if err := http.NewResponseController(c.Response()).SetWriteDeadline(noDeadline); err != nil {
			return fmt.Errorf("lift write deadline: %w", err)
		}
		_, err = log.Export(c.Request().Context(), c.Response(), from, min(until, size))
		return err
	}
}

func indexParam(c echo.Context, name string, standard int64) (int64, error) {
	text := c.QueryParam(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, authzen.Invalid("", "has a %s that is not an index: %q", name, text)
	}
	return n, nil
}

// serveCheckpoint tells how many entries the log has and the root of their
// tree.
func serveCheckpoint(log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error { return writeJSON(c, http.StatusOK, log.Head()) }
}
