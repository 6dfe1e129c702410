package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A request is an Access Request as the admin API shows it.
type request struct {
	Status  authzen.TaskStatus `json:"status"`
	Summary string             `json:"summary"`
	approval.Request

	May    []string `json:"may"`
	WhyNot string   `json:"why_not"`
}

type requestsPage struct {
	Requests []request     `json:"requests"`
	Page     *authzen.Page `json:"page"`
	Now      time.Time     `json:"-"`
}

// requests lists Access Requests that wait.
func (v *visit) requests() error {
	page := requestsPage{Now: v.config.Now()}
	query := url.Values{"status": {string(authzen.TaskPending)}, "limit": {"50"}}
	if token := v.r.URL.Query().Get("token"); token != "" {
		query.Set("token", token)
	}
	if err := v.ask(http.MethodGet, "/admin/v1/requests?"+query.Encode(), nil, &page); err != nil {
		return err
	}
	return v.show(http.StatusOK, "requests", "Approvals", page)
}
