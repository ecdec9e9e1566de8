// Package effects carries changes of links to caches that are not ours to fold: a CDN that is told to purge, a tier that several
// processes share. It is the only part that acts on the outside because of an event.
//
// There is no queue of effects: a handler reads the link events themselves, as a member of a consumer group of its own
// (events/eventlog/pubsub), so that what is still to be done is written down before the change is answered, and handlers do
// not wait for each other. What a record means, the fold beside it knows (Fold): it applies the chain rule to the same topic
// and holds, per link, the record that visitors are served by. A handler meets a record only after the fold has, and never
// a void one.
//
// Lists, trust and switches change the answers of links that did not change. A Sweeper follows the control log in the same way,
// looks for these links among those that may be cached, and tells the purge of each, through the topic of what is to be tried
// again; they have connections of their own, so that changes of links do not wait for them. What only time ends, an allowed host
// or trust, needs no purge: redirect nodes let no answer be kept beyond it. A denied network has no effect: a shared cache
// answers whoever asks, so it has to be denied there too.
//
// Invariants:
//   - Only accepted envelopes have effects.
//   - At least once: an effect is done, or its message is in the topic of dead letters, before the group's position passes it.
//     Kill -9 repeats effects, and they may come out of order; so a handler must bear both, by versions or because its
//     effect is the same each time.
//   - A handler that fails is tried again, with growing pauses and jitter, for a bounded time; then, or when it says that it is
//     of no use (ErrPermanent), the message becomes a dead letter, counted and logged. `hoplog effects dead` shows them and puts
//     them back.
//   - A group that is new begins at the log's end: a first start purges nothing of the past. A group that nobody was a member
//     of for longer than the brokers keep its positions (a week, as they come) is new again, and says so.
//
// A CDN is told to purge a link's URLs as visitors ask for them, without and with a slash at the end, or the prefixes that these
// begin with. What visitors put behind a question mark is not known here: a CDN that keeps answers by query too must be purged
// by prefix, whatever the link's query policy.
//
// It must not import gateway/app, and knows no Kafka, no Redis and no HTTP but its own.
package effects
