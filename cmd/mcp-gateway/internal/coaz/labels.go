package coaz

import (
	"fmt"
	"maps"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// labelImpact is the label with which policies distinguish reading from writing.
const labelImpact = "impact"

// labels returns the properties of a tool: the operator's labels and, if its
// annotations are trusted and the operator gives no impact, its impact. Nil means
// none.
func (a *mappingRun) labels(name string) (jsontext.Value, error) {
	labels := maps.Clone(a.Tools[name].Labels)
	if _, said := labels[labelImpact]; !said && a.Annotations == AnnotationsTrusted {
		impact, err := annotatedImpact(a.call.Tool)
		if err != nil {
			return nil, &MappingError{"the annotations of the tool cannot be read", err}
		}
		if impact != "" {
			if labels == nil {
				labels = make(map[string]string)
			}
			labels[labelImpact] = impact
		}
	}
	if len(labels) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(labels, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write labels: %w", err)
	}
	return text, nil
}

// annotatedImpact returns the impact that the annotations of a tool's definition
// state. The hints have the protocol's defaults: a tool that says that it writes, and
// does not say that it destroys nothing, is destructive. A tool without hints has no
// impact.
func annotatedImpact(definition jsontext.Value) (string, error) {
	if definition == nil {
		return "", nil
	}
	var tool struct {
		Annotations struct {
			ReadOnly    *bool `json:"readOnlyHint"`
			Destructive *bool `json:"destructiveHint"`
		} `json:"annotations"`
	}
	if err := json.Unmarshal(definition, &tool); err != nil {
		return "", err
	}
	readOnly, destructive := tool.Annotations.ReadOnly, tool.Annotations.Destructive
	switch {
	case readOnly == nil && destructive == nil:
		return "", nil
	case readOnly != nil && *readOnly && (destructive == nil || !*destructive):
		return "read", nil
	case destructive != nil && !*destructive:
		return "write", nil
	}
	return "destructive", nil
}
