// Package notify sends messages to people about Access Requests that they may decide: by mail, to a
// channel of Slack or Mattermost, to a topic of ntfy, and to a signed webhook.
//
// # Guarantees
//
// A message never decides: it has a link to the console, where the approver signs in, and no button. Its
// link is the same for everybody and is no secret.
//
// What others wrote, such as names of tools, cannot act in a message: it cannot end a header, mention a
// channel, format text or become a link ([inert]). Webhooks get it unchanged, because programs read them.
//
// Secrets are read from files, or from the environment, at each message. No error has a URL, which may be
// a secret itself.
package notify
