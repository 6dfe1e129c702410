package main

import (
	"io"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// formatParquet is a columnar file with a row for each decision.
const formatParquet = "parquet"

// A parquetRow is a decision. The columns are those of the table in CSV, with
// types: what is not there is null, and a list is a list.
type parquetRow struct {
	Index          int64          `parquet:"index,delta"`
	ID             string         `parquet:"id"`
	Time           time.Time      `parquet:"time,timestamp(nanosecond)"`
	Tenant         *string        `parquet:"tenant,dict"`
	Kind           string         `parquet:"kind,dict"`
	SubjectType    *string        `parquet:"subject_type,dict"`
	SubjectID      *string        `parquet:"subject_id"`
	Action         *string        `parquet:"action,dict"`
	ResourceType   *string        `parquet:"resource_type,dict"`
	ResourceID     *string        `parquet:"resource_id"`
	Decision       *bool          `parquet:"decision"`
	Policies       []string       `parquet:"policies,list"`
	Errors         []parquetError `parquet:"errors,list"`
	Obligations    []string       `parquet:"obligations,list"`
	Revision       *string        `parquet:"revision,dict"`
	Caller         *string        `parquet:"caller,dict"`
	RequestID      *string        `parquet:"request_id"`
	TraceID        *string        `parquet:"trace_id"`
	LatencyUS      int64          `parquet:"latency_us"`
	ShadowDecision *bool          `parquet:"shadow_decision"`
	ShadowPolicies []string       `parquet:"shadow_policies,list"`
	ShadowErrors   []parquetError `parquet:"shadow_errors,list"`
	ShadowRevision *string        `parquet:"shadow_revision,dict"`
}

type parquetError struct {
	Policy  *string `parquet:"policy,dict"`
	Message string  `parquet:"message"`
}

// rowsInGroup is how many rows are in memory at once.
const rowsInGroup = 50_000

// A parquetEncoder writes a file that nobody can read before it is flushed.
type parquetEncoder struct {
	file *parquet.GenericWriter[parquetRow]
}

func newParquetEncoder(w io.Writer) parquetEncoder {
	return parquetEncoder{parquet.NewGenericWriter[parquetRow](w, parquet.Compression(&parquet.Zstd),
		parquet.MaxRowsPerRowGroup(rowsInGroup), parquet.CreatedBy("policy-service", version, ""))}
}

func (e parquetEncoder) Encode(line []byte) error {
	decisions, err := decisionlog.ReadDecisions(line)
	for _, d := range decisions {
		if err == nil {
			_, err = e.file.Write([]parquetRow{rowOf(d)})
		}
	}
	return err
}

func (e parquetEncoder) Flush() error { return e.file.Close() }

func rowOf(d decisionlog.Decided) parquetRow {
	row := parquetRow{
		Index: d.Index, ID: d.ID, Time: d.Time, Tenant: orNull(d.Tenant), Kind: string(d.Kind),
		SubjectType: orNull(d.Subject.Type), SubjectID: orNull(d.Subject.ID), Action: orNull(d.Action),
		ResourceType: orNull(d.Resource.Type), ResourceID: orNull(d.Resource.ID),
		Revision: orNull(d.Revision), Caller: orNull(d.Caller), RequestID: orNull(d.RequestID), TraceID: orNull(d.TraceID),
		LatencyUS: d.LatencyMicros,
	}
	if d.Result == nil {
		return row
	}
	row.Decision, row.Policies, row.Errors = &d.Result.Decision, d.Result.Policies, errorsOf(d.Result)
	for _, o := range d.Result.Obligations {
		row.Obligations = append(row.Obligations, string(o.Type))
	}
	if shadow := d.Result.Shadow; shadow != nil {
		row.ShadowDecision, row.ShadowPolicies, row.ShadowErrors = &shadow.Decision, shadow.Policies, errorsOf(&shadow.Result)
		row.ShadowRevision = &shadow.Revision
	}
	return row
}

func errorsOf(r *decisionlog.Result) (all []parquetError) {
	for _, e := range r.Errors {
		all = append(all, parquetError{orNull(e.Policy), e.Message})
	}
	return all
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
