package authserver

import (
	"bytes"
	"compress/flate"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A client_id issued here is the registration itself: dcr_ and, in base64url, the version, the id
// of a key, the deflated metadata, and an HMAC over all of it. The server stores nothing, so
// registrations cannot fill the store, and an id is valid as long as its key is configured.
const (
	registeredPrefix  = "dcr_"
	registeredVersion = 1
	keyIDSize         = 4
	macSize           = 16
	maxRegisteredID   = 1024
	maxRegistration   = 16 << 10
	maxRedirects      = 10
)

// registrar makes and reads client ids. It is immutable; make it with newRegistrar.
type registrar struct {
	keys [][]byte // the first one signs
	// writers that have read the dictionary; a new one takes a megabyte, and most of the time of a
	// registration
	deflaters *sync.Pool
}

func newRegistrar(keys ...[]byte) registrar {
	return registrar{keys, &sync.Pool{New: func() any {
		w, _ := flate.NewWriterDict(nil, flate.BestCompression, []byte(dictionary)) // the level is valid
		return w
	}}}
}

// sealedClient is the content of an id. Its members must never change; new ones may be added.
type sealedClient struct {
	Name      string   `json:"n,omitempty"`
	Redirects []string `json:"r"`
}

// dictionary is the common text of real registrations, so that ids are short. A change makes old
// ids unreadable; use a new version for another dictionary.
const dictionary = `https://claude.ai/api/mcp/auth_callbackhttps://vscode.dev/redirecthttps://chatgpt.com/connector/` +
	`oauth/https://www.cursor.com/agents/mcp/oauth/callbackcursor://anysphere.cursor-mcp/oauth/callba` +
	`ck","http://127.0.0.1:33418/","http://127.0.0.1/","http://localhost:8787/callback"]}{"n":"Claude` +
	` Code (","r":["http://localhost:`

func keyID(key []byte) []byte {
	sum := sha256.Sum256(append([]byte("id of "), key...))
	return sum[:keyIDSize]
}

func (r registrar) seal(m sealedClient) (string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	b.WriteByte(registeredVersion)
	b.Write(keyID(r.keys[0]))
	w := r.deflaters.Get().(*flate.Writer)
	defer r.deflaters.Put(w)
	w.Reset(&b)
	_, _ = w.Write(text) // to memory
	_ = w.Close()
	b.Write(mac(r.keys[0], b.Bytes()))
	id := registeredPrefix + base64.RawURLEncoding.EncodeToString(b.Bytes())
	if len(id) > maxRegisteredID {
		return "", errors.New("the metadata is too large for this server: register fewer or shorter redirect URIs")
	}
	return id, nil
}

// open returns the client of an id. The error is errNotIssued unless seal made the id.
func (r registrar) open(id string) (*client, error) {
	text, ok := strings.CutPrefix(id, registeredPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(id) > maxRegisteredID || len(b) < 1+keyIDSize+macSize || b[0] != registeredVersion {
		return nil, errNotIssued
	}
	body, sum := b[:len(b)-macSize], b[len(b)-macSize:]
	for _, key := range r.keys {
		if !bytes.Equal(keyID(key), body[1:1+keyIDSize]) || !hmac.Equal(mac(key, body), sum) {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(bytes.NewReader(body[1+keyIDSize:]),
			[]byte(dictionary)), 1<<20))
		var m sealedClient
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil {
			return nil, errNotIssued
		}
		return &client{ID: id, Kind: kindRegistered, Name: m.Name, Redirects: m.Redirects}, nil
	}
	return nil, errNotIssued
}

func mac(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)[:macSize]
}

// registration is a registration request (RFC 7591, section 2), with the members that are used
// here.
type registration struct {
	RedirectURIs []string `json:"redirect_uris"`
	ClientName   string   `json:"client_name"`
}

// registered is the answer to a registration: the values in effect.
type registered struct {
	ClientID                string   `json:"client_id"`
	ClientIDIssuedAt        int64    `json:"client_id_issued_at"`
	ClientName              string   `json:"client_name,omitempty"`
	RedirectURIs            []string `json:"redirect_uris"`
	GrantTypes              []string `json:"grant_types"`
	ResponseTypes           []string `json:"response_types"`
	TokenEndpointAuthMethod string   `json:"token_endpoint_auth_method"`
	Scope                   string   `json:"scope"`
}

// register is POST /oauth/register. Invalid redirect URIs are left out, since clients send sets for
// all the places that they run in; the answer lists the rest.
func (srv *Server) register(w http.ResponseWriter, r *http.Request) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		fail(w, http.StatusBadRequest, "invalid_client_metadata", "send application/json")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRegistration))
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		fail(w, status, "invalid_client_metadata", "cannot read the body, or it is larger than 16 KiB")
		return
	}
	var asked registration
	if err := json.Unmarshal(body, &asked); err != nil {
		fail(w, http.StatusBadRequest, "invalid_client_metadata", "the body is not a JSON object with redirect_uris "+
			"and client_name")
		return
	}
	if len(asked.RedirectURIs) > maxRedirects {
		fail(w, http.StatusBadRequest, "invalid_redirect_uri", "there are more than 10 redirect_uris")
		return
	}
	m := sealedClient{Name: cleanName(asked.ClientName)}
	why := errors.New("redirect_uris is empty")
	for _, uri := range asked.RedirectURIs {
		if err := checkRedirect(uri, srv.config.Clients.AllowedSchemes); err != nil {
			why = err
			continue
		}
		m.Redirects = append(m.Redirects, uri)
	}
	if len(m.Redirects) == 0 {
		fail(w, http.StatusBadRequest, "invalid_redirect_uri", "no redirect URI is valid: "+why.Error())
		return
	}
	id, err := srv.registrar.seal(m)
	if err != nil {
		fail(w, http.StatusBadRequest, "invalid_client_metadata", err.Error())
		return
	}
	reply(w, http.StatusCreated, registered{
		ClientID: id, ClientIDIssuedAt: srv.now().Truncate(time.Second).Unix(), ClientName: m.Name,
		RedirectURIs: m.Redirects,
		GrantTypes:   grantTypes, ResponseTypes: responseTypes, TokenEndpointAuthMethod: "none",
		Scope: strings.Join(scopes, " "),
	})
}
