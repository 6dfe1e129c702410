package webhook

// CheckAddress is for addresses that no test can have.
var CheckAddress = checkAddress
