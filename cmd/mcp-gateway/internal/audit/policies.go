package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// AdminURLFile is the file, beside a log, in which the process that has the log open
// names its admin listener: a PDP or a gateway.
const AdminURLFile = "admin-url"

// maxDecision bounds an entry of the log of a PDP.
const maxDecision = 32 << 20

// Policies returns the policies that determined decisions, by Decision-ID. State is
// the state directory of the PDP on this host. If the PDP runs, its admin listener
// is asked. Decisions that its log does not have are left out.
func Policies(ctx context.Context, state string, ids []string) (map[string][]string, error) {
	look := lookOnline(state)
	reader, err := decisionlog.OpenReadOnly(state)
	switch {
	case err == nil:
		defer reader.Close()
		look = func(ctx context.Context, id string) (line []byte, err error) {
			for line, err := range reader.Select(ctx, decisionlog.Filter{ID: id}) {
				return slices.Clone(line), err
			}
			return nil, nil
		}
	case !errors.Is(err, decisionlog.ErrLocked):
		return nil, err
	}
	all := make(map[string][]string)
	for _, id := range ids {
		line, err := look(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("decision %s: %w", id, err)
		}
		if len(line) == 0 {
			continue
		}
		if all[id], err = policiesOf(line); err != nil {
			return nil, fmt.Errorf("decision %s: %w", id, err)
		}
	}
	return all, nil
}

// policiesOf returns the policies of all decisions of an entry.
func policiesOf(line []byte) (all []string, err error) {
	rows, err := decisionlog.ReadDecisions(line)
	for _, row := range rows {
		if row.Result != nil {
			all = append(all, row.Result.Policies...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// lookOnline asks the PDP that has the log of a directory open.
func lookOnline(state string) func(ctx context.Context, id string) ([]byte, error) {
	return func(ctx context.Context, id string) ([]byte, error) {
		base, err := os.ReadFile(filepath.Join(state, AdminURLFile))
		if err != nil {
			return nil, fmt.Errorf("the PDP has its log open, and no admin listener: %w", err)
		}
		address := strings.TrimSpace(string(base)) + "/admin/v1/log/query?" + url.Values{"id": {id}, "limit": {"1"}}.Encode()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the admin listener of the PDP answered %s: look with policy-service log query --id", response.Status)
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, maxDecision))
		line, _, _ := strings.Cut(string(text), "\n")
		return []byte(line), err
	}
}
