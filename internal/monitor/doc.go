// Package monitor keeps the event contract: what a subscriber downstream is told
// of the connections that go through this proxy, and when.
//
// The table holds what the subscribers have been told of each leg. It changes by
// the answer to a Request, a Close, and a word of the far side, which a relay brings
// (relay.go). A transport that breaks is none of them: what is made of its silence is
// the relay's affair, which tells the loss when the grace is over, and that of the
// stopgap, which answers in an outage.
//
// What is promised:
//
//   - Order: the events of one connection reach each subscriber in the order in
//     which they came about. There is no order between connections.
//   - Once: a state is told once. A refresh is one UPDATE, a loss one DOWN.
//   - Never back in time: while a Request of a leg is in flight the far side's
//     words of it wait (held.go), and are judged against the answer. A relay
//     that has been replaced is not listened to.
//   - Back-pressure: nobody waits for a subscriber. One that does not read loses
//     its stream with ResourceExhausted and learns the state anew when it
//     returns. A subscriber that leaves is forgotten at once.
//   - A subscriber that is not the previous hop of a connection, by its SPIFFE ID,
//     sees it without tokens.
//   - A late subscriber gets an INITIAL_STATE_TRANSFER of what is known, never
//     from upstream, even if it is empty.
//   - An UPDATE, UP of the far side that is malformed is left out. If anything else
//     cannot be decoded, nothing of its event counts, and the stream is taken for broken.
//   - Of what is told, a connection is encoded once. Its events have it for those behind
//     gRPC; who calls the table itself finds none in them.
//   - At the end of the chain's context all streams end with Unavailable. Nothing
//     is closed upstream.
//
// A relay watches each leg, in one of four states:
//
//	opening ──initial state──▶ watching ──stream ends──▶ opening
//	   │ │                        ▲
//	   │ └─leg is not in it, ─▶ missing ──re-request answered──▶ opening
//	   │   or stream refused      │
//	   └──────── grace over ──────┴──▶ down ──initial state, UP──▶ watching
//
// The grace runs from the last word of the far side: the end of a stream on which
// it showed the leg, or the answer to a Request. In every state the far side's own
// DOWN is told at once; after it nothing is requested in place, since that word is
// not argued with. From missing, and from the stopgap that answers a refresh in an
// outage (stopgap.go), the leg is requested from its own copy, with the same ids.
package monitor
