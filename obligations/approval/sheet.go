package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A Sheet has everything of a request that an approver is shown and that never changes. Values that
// look like secrets are masked ([Config.Mask]). So its digest identifies what was shown, and reveals no
// secret to those who know the rest.
type Sheet struct {
	JSON   jsontext.Value // canonical form (RFC 8785) of a SheetContent
	Digest string         // SHA-256 of JSON, as in sha256:2c26…
}

// A SheetContent is the content of a sheet.
type SheetContent struct {
	Task      string          `json:"task"`
	Tenant    string          `json:"tenant,omitzero"`
	Caller    string          `json:"caller,omitzero"` // PEP
	Subject   authzen.Subject `json:"subject"`
	Actors    []Actor         `json:"actors,omitempty"` // nearest first
	Context   jsontext.Value  `json:"context,omitzero"`
	Access    jsontext.Value  `json:"access,omitzero"` // requested_access
	Client    jsontext.Value  `json:"client,omitzero"` // not verified
	Priority  string          `json:"priority,omitzero"`
	Submitted time.Time       `json:"submitted"`
	DecideBy  time.Time       `json:"decide_by"`
	Bulk      bool            `json:"bulk,omitzero"`
	Items     []SheetItem     `json:"items"`
}

// A SheetItem is an item of a sheet.
type SheetItem struct {
	EvaluationID string                   `json:"evaluation_id"`
	Revision     string                   `json:"revision"`
	Template     string                   `json:"template"`
	Terms        authzen.ApprovalTemplate `json:"terms"`
	Action       authzen.Action           `json:"action"`
	Resource     authzen.Resource         `json:"resource"`
	Access       jsontext.Value           `json:"access,omitzero"`
	Until        time.Time                `json:"until,omitzero"` // requested_until
	Members      []string                 `json:"members"`        // names of the bound members of the context
	Whole        bool                     `json:"whole,omitzero"` // every member is bound
}

// Sheet returns the sheet of a request.
func (s *Service) Sheet(ctx context.Context, id string) (Sheet, *Request, error) {
	r, err := s.Request(ctx, id)
	if err != nil {
		return Sheet{}, nil, err
	}
	sheet, err := s.SheetOf(r)
	return sheet, r, err
}

// SheetOf returns the sheet of a stored request.
func (s *Service) SheetOf(r *Request) (Sheet, error) {
	_, text, err := s.sheetTexts(r)
	if err != nil {
		return Sheet{}, err
	}
	canonical, err := jsonobject.Canonical(text)
	if err != nil {
		return Sheet{}, fmt.Errorf("encode sheet: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return Sheet{canonical, "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// sheetTexts returns the request's sheet with secrets, and with masks in their place. Both are equal but
// for that.
func (s *Service) sheetTexts(r *Request) (clear, masked jsontext.Value, err error) {
	text, err := json.Marshal(r.sheet())
	clear, masked = text, slices.Clone(text)
	if err == nil && s.config.Mask != nil {
		masked, err = s.config.Mask(masked)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("encode sheet: %w", err)
	}
	return clear, masked, nil
}

// sheet returns the content of the request's sheet, with secrets.
func (r *Request) sheet() *SheetContent {
	c := &SheetContent{
		Task: r.ID, Tenant: r.Tenant, Caller: r.Caller, Subject: r.Subject, Actors: r.Actors, Context: r.Context, Access: r.Access,
		Client: r.Client, Priority: r.Priority, Submitted: r.Submitted, DecideBy: r.DecideBy, Bulk: r.Bulk,
	}
	for _, i := range r.Items {
		c.Items = append(c.Items, SheetItem{
			EvaluationID: i.EvaluationID, Revision: i.Revision, Template: i.Template, Terms: i.Terms, Action: i.Action, Resource: i.Resource,
			Access: i.Access, Until: i.Until, Members: i.Bound.Members, Whole: i.Bound.Whole,
		})
	}
	return c
}

// digestShape is the form of digests of sheets.
var digestShape = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ShortSheet returns the first eight digits of the digest of a sheet, by which people compare what they
// were shown, in two groups.
func ShortSheet(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	if len(hex) < 8 {
		return hex
	}
	return hex[:4] + " " + hex[4:8]
}

// checkSheet returns ErrSheet if a decision is about another sheet than the request's. A decision
// without the digest of a sheet does not say what was shown.
func (s *Service) checkSheet(r *Request, d *Decision) error {
	if d.Sheet == "" {
		return nil
	}
	sheet, err := s.SheetOf(r)
	if err == nil && d.Sheet != sheet.Digest {
		err = ErrSheet
	}
	return err
}
