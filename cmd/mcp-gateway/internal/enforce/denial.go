package enforce

import (
	"cmp"

	"github.com/policy-service/policy-service/obligations/plain"
)

// A Denial says how clients are told no.
type Denial struct {
	Codes     Codes
	Code      int // of a denial; 0 is that of Codes
	OlderCode int // of one about a tool that is declared in the older dialect; 0 is -32401
	// CapabilityCode is that of a call for want of a capability. 0 is -32003, in versions
	// without sessions only with CodesMCPX, and otherwise the code of a denial there.
	CapabilityCode int
	Status         int // HTTP: 200, with which clients see the error, or 403; 0 is 200
	// Conceal: a call of a tool that its caller may not use is answered like one of a
	// tool that there is not.
	Conceal bool
	// TellReason: the reason of a refusal is what the person wrote who refused the call,
	// where the PDP tells.
	TellReason bool
}

// Codes say which JSON-RPC error codes denials have.
type Codes string

const (
	// CodesApplication has a code outside of the range that JSON-RPC reserves. MCP
	// 2026-07-28 ("Error Codes") wants that of new codes, and no SDK has another
	// meaning for it. It is the default.
	CodesApplication Codes = "application"
	// CodesCOAZ has the code of the COAZ MCP binding (draft 1). The TypeScript SDK
	// takes it for a time-out.
	CodesCOAZ Codes = "coaz"
	// CodesMCPX has the codes and the messages of MCPx: one for calls that a person
	// has to approve, and one for denials.
	CodesMCPX Codes = "mcpx"
)

// Codes of errors.
const (
	codeApplication  = 4030
	codeCOAZ         = -32001
	codeCOAZOlder    = -32401
	codeMCPXRequired = -32001
	codeMCPXDenied   = -32002
)

// Messages of MCPx.
const (
	messageMCPXRequired = "Authorization required"
	messageMCPXDenied   = "Authorization denied"
)

// maxComment bounds the reason that a person gave, in characters.
const maxComment = 512

// withDefaults returns the Denial with what it does not say.
func (d Denial) withDefaults() Denial {
	d.Codes = cmp.Or(d.Codes, CodesApplication)
	d.Code = cmp.Or(d.Code, map[Codes]int{CodesApplication: codeApplication, CodesCOAZ: codeCOAZ, CodesMCPX: codeMCPXDenied}[d.Codes])
	d.OlderCode = cmp.Or(d.OlderCode, codeCOAZOlder)
	d.Status = cmp.Or(d.Status, statusOK)
	return d
}

// present returns the refusal as its client gets it.
func (d Denial) present(r *Refusal) *Refusal {
	shown := *r
	shown.Code, shown.Status = cmp.Or(r.Code, d.Code), cmp.Or(r.Status, d.Status)
	if d.Codes == CodesMCPX && shown.Code == d.Code {
		shown.Data.Text, shown.Message = r.Message, messageMCPXDenied
		if r.Data.Reason == ReasonPending || r.Data.Reason == ReasonAuthorization {
			shown.Code, shown.Message = codeMCPXRequired, messageMCPXRequired
		}
	}
	if d.TellReason && r.Data.Comment != "" {
		shown.Data.Text = plain.Cut(r.Data.Comment, maxComment)
	}
	return &shown
}
