package console

// notice is the data of the page code.html.
type notice struct {
	Title, Text, Code string
	Next              string // the path that goes on; "" if nothing does
}

// with returns the notice with a code and the path that goes on.
func (n notice) with(code, next string) notice {
	n.Code, n.Next = code, next
	return n
}

// The notices of a console.
var (
	notFromHere = notice{Title: "Not from here",
		Text: "The console is for browsers on the machine of Junction. From another machine, use " +
			"ssh -L or kubectl port-forward. A published port of a container does not arrive from" +
			" this machine."}
	sessionOver = notice{Title: "The session has ended",
		Text: "Sessions of the console end after an hour without use, after twelve hours, and with " +
			"the process. Run junction console again."}
	notYours = notice{Title: "Not your session",
		Text: "Another browser has this session. Run junction console, and open the address that it" +
			" prints."}
	stillWaiting = notice{Title: "Waiting for the terminal",
		Text: "The terminal has no answer yet. The code was shown once, when this page was opened. " +
			"If you have not seen it, answer no at the terminal, and run junction console again."}
	sessionEnded = notice{Title: "The session has ended",
		Text: "Run junction console to open another one."}
	secondBrowser = notice{Title: "Answer no at the terminal",
		Text: "Another browser has opened this page before, and has a code. Answer no at the " +
			"terminal, whatever code it shows, and run junction console again."}
	compareCode = notice{Title: "Compare the code",
		Text: "The terminal in which you ran junction console asks whether this page shows the same" +
			" code. Answer yes only if the codes are equal."}
	notFromPage = notice{Title: "Not from this page",
		Text: "This request does not come from a form of this session. Nothing was changed."}
)
