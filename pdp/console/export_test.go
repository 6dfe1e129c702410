package console

// OwnPath is where somebody goes after signing in.
var OwnPath = ownPath
