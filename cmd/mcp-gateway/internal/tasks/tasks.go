package tasks

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// ownsTask reports whether the caller began the task.
func (o *Owners) ownsTask(c *enforce.Call, id string) (bool, error) {
	of, err := o.owned(c, id)
	return of != nil, err
}

// owned returns the record of a task that the caller began, or nil.
func (o *Owners) owned(c *enforce.Call, id string) (*owner, error) {
	of, err := o.of(c.Server, id)
	if of != nil && of.key() != ownerOf(c.Caller).key() {
		of = nil
	}
	return of, err
}

// Check refuses a call that names a task of another caller: tasks/get and similar
// methods, subscriptions to tasks, and calls with related tasks. The obligations on
// the result of a task become those of the call that names it.
func (o *Owners) Check(c *enforce.Call) error {
	named, err := taskIDs(c)
	if err != nil {
		return err
	}
	for _, id := range named {
		of, err := o.owned(c, id)
		if err != nil {
			return err
		}
		if of == nil {
			return enforce.NoSuchTask()
		}
		if id == c.Params.TaskID {
			c.Results = c.Results.And(of.Results)
		}
	}
	return nil
}

// taskIDs returns the tasks that a call names. Progress is exempt: it may concern a
// task of the client, which a server began there.
func taskIDs(c *enforce.Call) ([]string, error) {
	switch c.Message.Method {
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return []string{c.Params.TaskID}, nil
	}
	if c.Message.Params == nil {
		return nil, nil
	}
	var params struct {
		Meta struct {
			Related []string `json:"io.modelcontextprotocol/relatedTaskIds"`
			// Task is that of 2025-11-25.
			Task *task `json:"io.modelcontextprotocol/related-task"`
		} `json:"_meta"`
		Notifications jsontext.Value `json:"notifications"`
	}
	var listens struct {
		IDs []string `json:"taskIds"`
	}
	err := json.Unmarshal(c.Message.Params, &params)
	if err == nil && c.Message.Method == "subscriptions/listen" && params.Notifications != nil {
		err = json.Unmarshal(params.Notifications, &listens)
	}
	if err != nil {
		return nil, &enforce.Refusal{Code: wire.CodeParams, Status: 200, Message: "the tasks that are named cannot be read", Data: enforce.Data{Reason: enforce.ReasonInvalidMessage}}
	}
	named := append(listens.IDs, params.Meta.Related...)
	if params.Meta.Task != nil && c.Message.Method != wire.MethodProgress {
		named = append(named, params.Meta.Task.ID)
	}
	return named, nil
}

// FilterResult returns the result for the caller. It stores the owner of a task before
// the caller gets the result that begins the task, and removes tasks of others from
// lists.
func (o *Owners) FilterResult(_ context.Context, c *enforce.Call, result jsontext.Value) (jsontext.Value, error) {
	switch c.Message.Method {
	case "tasks/list":
		return o.filter(c, result)
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return result, nil
	}
	var begun struct {
		Type string `json:"resultType"`
		task
		Older task `json:"task"`
	}
	members, err := jsonobject.Parse(result)
	if err != nil {
		return nil, err
	}
	if string(members["resultType"]) != `"task"` && members["task"].Kind() != '{' {
		return result, nil
	}
	if err := json.Unmarshal(result, &begun); err != nil {
		return nil, fmt.Errorf("read task: %w", err)
	}
	for _, t := range []task{begun.task, begun.Older} {
		if t.ID == "" {
			continue
		}
		if err := o.keep(c, t); err != nil {
			return nil, fmt.Errorf("store task: %w", err)
		}
	}
	return result, nil
}

// filter removes tasks of other callers from a list.
func (o *Owners) filter(c *enforce.Call, result jsontext.Value) (jsontext.Value, error) {
	members, err := jsonobject.Parse(result)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	var all []jsontext.Value
	if err := json.Unmarshal(members["tasks"], &all); err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	own := []jsontext.Value{}
	for _, text := range all {
		var t task
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, fmt.Errorf("read tasks: %w", err)
		}
		is, err := o.ownsTask(c, t.ID)
		if err != nil {
			return nil, err
		}
		if is {
			own = append(own, text)
		}
	}
	if err := members.Set("tasks", own); err != nil {
		return nil, err
	}
	return members.Encode()
}

// AllowsNotification reports whether the caller gets a notification of the server. It
// withholds the status of tasks of other callers, and of tasks with obligations on
// their result: tasks/get carries the obligations out.
func (o *Owners) AllowsNotification(c *enforce.Call, m *wire.Message) bool {
	if m.Method != "notifications/tasks" && m.Method != "notifications/tasks/status" {
		return true
	}
	params, err := m.Read()
	if err != nil {
		return false
	}
	of, err := o.owned(c, params.TaskID)
	return of != nil && err == nil && of.Results.IsZero()
}
