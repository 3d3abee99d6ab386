//! Joining and renewing: how a machine gets its certificate and keeps one.
//!
//! 1. The anchor comes over a connection that believes nobody; its digest must be the pin.
//! 2. Everything else goes over a connection that believes the anchor's roots only.
//! 3. The token, and what the machine proves, travel sealed; the answer is signed and answers this very request.
//!
//! Key and request are kept before the first call and used again by every later one, so a join that was interrupted
//! anywhere gets the same answer when it is run again.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use pki::{
    Realm,
    anchor::{Anchor, AnchorRefusal, AnchorTrust},
    bundle::TrustBundle,
    csr,
    node_key::NodeKey,
    report::RenewalAsked,
    sealed,
    statement::{JoinIdentity, JoinIdentityRefusal},
    tls::{self, LeftOpen, ServerTimes, agent_client},
    token::Token,
    trust::statement::FleetId,
    verify::{IdentityRefusal, NodeIdentity, NodeVerifier, Validity},
};
use proto::agent::v1::{
    self as pb, GetAnchorRequest, JoinRequest, JoinResponse, RenewRequest, join_client::JoinClient,
};
use rustls_pki_types::CertificateDer;
use schema::{
    digest::Digest,
    id::{BootId, NodeId},
    time::Timestamp,
};
use tonic::{Code, Status};

use crate::{
    agent::Backoff,
    attest::{Attest, AttestError},
    dial::{DialError, Endpoint, dial},
    hardware::Hardware,
    policies::Policies,
    state::{Identity, Progress, StateDir, StateError},
    wire,
};

const CALL: Duration = Duration::from_secs(30);
const HELD_AGAIN: Duration = Duration::from_secs(12);

/// What is needed to join.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where the control plane listens; all are kept, and tried in turn.
    pub endpoints: Vec<Endpoint>,
    /// The digest of the control plane's anchor.
    pub pin: Digest,
    /// The join token, when there is one.
    pub token: Option<Token>,
    /// What the machine proves besides, or instead.
    pub attest: Attest,
    /// The state directory.
    pub state: PathBuf,
    /// What the machine is made of.
    pub hardware: Arc<dyn Hardware>,
    /// How long to go on while nobody answers.
    pub patience: Duration,
    /// Whether an identity that is there is given up.
    pub force: bool,
}

/// Why a join failed.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is an identity already.
    #[error(
        "this machine is {0} already; `bcd run` goes on with it unless it was revoked, `bcd join --force` gives it up"
    )]
    AlreadyJoined(NodeId),
    /// The anchor is not the pinned one.
    #[error(
        "{endpoint}: {source}; compare the pin with what `better-compute token create` prints; after a rotation of keys it is another one"
    )]
    Anchor {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        source: AnchorRefusal,
    },
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The control plane said no.
    #[error("the control plane refuses: {message} [{code}]{}", advice(code))]
    Refused {
        /// A stable word.
        code: String,
        /// For the person at the machine.
        message: String,
    },
    /// The control plane did not answer properly.
    #[error("the control plane could not answer: {0}")]
    Unanswered(String),
    /// What answers is no gateway.
    #[error(
        "{0} is not where machines join: something else answers there; use the address that `better-compute token create` \
         prints (of a control plane's two ports it is the gateway's, 7444 when nothing else was said; 7443 is the API's)"
    )]
    NotAGateway(Endpoint),
    /// The control plane waits for somebody.
    #[error("held: {message} [{code}]")]
    Held {
        /// A stable word.
        code: String,
        /// For the person at the machine.
        message: String,
    },
    /// The answer is not believed.
    #[error("the answer is not believed: {0}")]
    Answer(#[from] JoinIdentityRefusal),
    /// The certificate in the answer is not good.
    #[error("the certificate in the answer is not good: {0}")]
    Certificate(#[from] IdentityRefusal),
    /// Something else in the answer is not good.
    #[error("the answer is not good: {0}")]
    Malformed(String),
    /// The control plane is pinned to another fleet than this machine remembers.
    #[error(
        "this machine remembers that people sign for the fleet {known} here, and the anchor says {now}; if the fleet was made \
         anew, remove {}", file.display()
    )]
    OtherFleet {
        /// What it remembers.
        known: FleetId,
        /// What the anchor says.
        now: FleetId,
        /// Where it remembers it.
        file: PathBuf,
    },
    /// The machine cannot show what it should.
    #[error(transparent)]
    Attest(#[from] AttestError),
    /// The state cannot be read or written.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
}

fn advice(code: &str) -> &'static str {
    if code.starts_with("token") {
        "; make a new token with `better-compute token create --pool POOL`"
    } else if code.contains("described") {
        "; only a fleet that was made with `up --dev` admits described hardware"
    } else {
        ""
    }
}

impl JoinError {
    /// Whether the same call may succeed later without anybody changing the command.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Dial(error) => error.may_pass(),
            Self::Unanswered(_) | Self::Held { .. } => true,
            _ => false,
        }
    }
}

/// Joins. Tries again while nobody answers, as long as patience lasts, and without end while the join is held.
///
/// # Errors
/// With the reason, and what to do about it.
pub async fn join(request: &Request) -> Result<Identity, JoinError> {
    let state = StateDir::open(&request.state)?;
    let _lock = state.lock()?;
    if let Some(identity) = state.identity()? {
        if !request.force {
            return Err(JoinError::AlreadyJoined(identity.identity.node_id));
        }
        state.forget_identity()?;
    }
    let (key, csr) = state.key_and_request()?;
    let claims = claims(Arc::clone(&request.hardware)).await?;

    let mut backoff = Backoff::default();
    let mut deadline = Instant::now() + request.patience;
    let mut said = String::new();
    for endpoint in request.endpoints.iter().cycle() {
        let error = match attempt(request, &state, endpoint, &csr, &claims).await {
            Ok((anchor, response)) => return accept(request, &state, &key, &csr, anchor, response),
            Err(error) => error,
        };
        let held = matches!(error, JoinError::Held { .. });
        if held {
            deadline = Instant::now() + request.patience;
        }
        if !error.may_pass() || Instant::now() >= deadline {
            return Err(error);
        }
        let text = error.to_string();
        if text != said {
            if held {
                tracing::warn!("{text}; waiting until somebody resolves it: `better-compute joins list` shows how");
            } else {
                tracing::warn!("{text}; trying again");
            }
            said = text;
        }
        let wait = backoff.next(rand::random_range(0.0..1.0));
        let wait = if held { HELD_AGAIN.mul_f64(rand::random_range(0.8..1.2)) } else { wait };
        tokio::time::sleep(wait).await;
    }
    Err(JoinError::Malformed("no address was given".to_owned()))
}

async fn attempt(
    request: &Request,
    state: &StateDir,
    endpoint: &Endpoint,
    csr: &[u8],
    claims: &[u8],
) -> Result<(Anchor, JoinResponse), JoinError> {
    let channel = dial(endpoint, tls::bootstrap_client_that_believes_any_server()).await?;
    let answer = within(JoinClient::new(channel).get_anchor(GetAnchorRequest {})).await;
    let answer = answer.map_err(|error| match error {
        JoinError::Unanswered(message) if speaks_something_else(&message) => JoinError::NotAGateway(endpoint.clone()),
        error => error,
    })?;
    let anchor = Anchor::from_pinned(&answer.anchor, request.pin)
        .map_err(|source| JoinError::Anchor { endpoint: endpoint.clone(), source })?;

    // Nothing but a certificate comes of it, and the first session proves the time.
    let trusted = agent_client(&anchor.roots(), None, ServerTimes::Open(LeftOpen::default()))
        .map_err(|error| JoinError::Malformed(error.to_string()))?;
    let channel = dial(endpoint, trusted).await?;
    let token = request.token.as_ref().map(|token| sealed::seal(&anchor, csr::hash(csr), token)).transpose();
    let token = token.map_err(|error| JoinError::Malformed(error.to_string()))?;
    let mut client = JoinClient::new(channel);
    let shown = if request.attest.is_empty() {
        None
    } else {
        let gathering = request.attest.begin(state.path()).await?;
        let answer = within(client.join_challenge(gathering.challenge(csr))).await?;
        Some(gathering.show(&anchor, csr, answer).await?)
    };
    let (evidence, challenge) = shown.map(|shown| (shown.evidence, shown.challenge)).unzip();
    let call = JoinRequest {
        csr: csr.to_vec(),
        token: token.map(wire::sealed),
        claims: claims.to_vec(),
        described: request.hardware.is_described(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        evidence,
        challenge: challenge.unwrap_or_default(),
    };
    let response = within(client.join(call)).await?;
    Ok((anchor, response))
}

fn accept(
    request: &Request,
    state: &StateDir,
    key: &NodeKey,
    csr: &[u8],
    anchor: Anchor,
    response: JoinResponse,
) -> Result<Identity, JoinError> {
    let signature = wire::signature(response.signature);
    // This machine may not know the time yet; the first session proves it.
    let identity = anchor.verifier().identity(csr::hash(csr), &response.identity, &signature, Validity::Open)?;
    let bundle = response.trust_bundle.ok_or_else(|| JoinError::Malformed("it brings no trust bundle".to_owned()))?;
    let trust =
        wire::bundle(bundle).first(&anchor.verifier()).map_err(|error| JoinError::Malformed(error.to_string()))?;
    check_chain(&anchor.roots(), &identity, key, &response.certificate_chain)?;

    let realm = anchor.realm();
    remember_policy(state, &realm, anchor.trust)?;
    let kept = Identity {
        endpoints: request.endpoints.iter().map(ToString::to_string).collect(),
        identity,
        anchor,
        chain: Identity::encode(&response.certificate_chain),
        described: request.hardware.is_described(),
    };
    state.keep_trust(&trust)?;
    state.keep_progress(&Progress::begin(BootId::generate()))?;
    // The identity last: with it there, the join is complete.
    state.keep_identity(&kept)?;
    Ok(kept)
}

/// A machine that comes back to the same control plane remembers what it knew; another one's people are others.
fn remember_policy(state: &StateDir, realm: &Realm, trust: Option<AnchorTrust>) -> Result<(), JoinError> {
    let known = state.policies()?;
    let ours = known.as_ref().filter(|known| known.is_of(realm));
    match (ours, trust) {
        (Some(known), Some(trust)) if known.trust() != trust => Err(JoinError::OtherFleet {
            known: known.trust().fleet,
            now: trust.fleet,
            file: state.path().join("policies.json"),
        }),
        (Some(_), _) => Ok(()),
        (None, Some(trust)) => Ok(state.keep_policies(Policies::pinned(realm, trust).kept())?),
        (None, None) => Ok(state.forget_policies()?),
    }
}

fn certificates(chain: &[Vec<u8>]) -> Vec<CertificateDer<'static>> {
    chain.iter().cloned().map(CertificateDer::from).collect()
}

fn check_chain(
    roots: &[CertificateDer<'_>],
    identity: &JoinIdentity,
    key: &NodeKey,
    chain: &[Vec<u8>],
) -> Result<NodeIdentity, JoinError> {
    let verifier = NodeVerifier::new(&identity.trust_domain, roots)?;
    let certificate = verifier.identify(&certificates(chain), Validity::Open)?;
    if certificate.node_id != identity.node_id || certificate.public_key != key.public() {
        return Err(JoinError::Malformed("the certificate is another node's".to_owned()));
    }
    Ok(certificate)
}

/// A new certificate.
#[derive(Debug)]
pub struct Renewed {
    /// DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// What the leaf says.
    pub certificate: NodeIdentity,
    /// Who this machine is, signed anew; `None` from a control plane that says it in a join only.
    pub identity: Option<JoinIdentity>,
    /// What is trusted now: every step that was missed is taken.
    pub trust: TrustBundle,
    /// The time, as the control plane signed it.
    pub time: Timestamp,
}

/// What the machine says that it is made of.
async fn claims(hardware: Arc<dyn Hardware>) -> Result<Vec<u8>, JoinError> {
    let read = tokio::task::spawn_blocking(move || hardware.read().claims().to_bytes());
    read.await.map_err(|_| JoinError::Malformed("the machine could not be read".to_owned()))
}

/// What a renewal is made with.
#[derive(Debug)]
pub struct Renewal {
    /// Where.
    pub endpoint: Endpoint,
    /// What of the server is judged by the signed time that it answers with.
    pub left_open: LeftOpen,
    /// The node key.
    pub key: Arc<NodeKey>,
    /// What is trusted so far.
    pub trust: TrustBundle,
    /// The present certificate.
    pub current: NodeIdentity,
    /// Its chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// What the machine is made of, for whoever has to let a late one through.
    pub hardware: Arc<dyn Hardware>,
}

impl Renewal {
    /// Asks for a new certificate for the same key, with a proof that this machine holds it. Works with an expired one too,
    /// on a machine that does not know the time, and after roots were replaced while it was away.
    ///
    /// # Errors
    /// With the reason.
    pub async fn run(self) -> Result<Renewed, JoinError> {
        let malformed = JoinError::Malformed;
        let leaf = self.chain.first().ok_or_else(|| malformed("there is no certificate to renew".to_owned()))?.to_vec();
        let tls = agent_client(&self.trust.roots(), None, ServerTimes::Open(self.left_open.clone()))
            .map_err(|error| malformed(error.to_string()))?;
        let mut client = JoinClient::new(dial(&self.endpoint, tls).await?);

        let nonce: [u8; 32] = rand::random();
        let call = pb::RenewChallengeRequest {
            certificate: leaf.clone(),
            nonce: nonce.to_vec(),
            trust_version: self.trust.version,
        };
        let answer = within(client.renew_challenge(call)).await?;
        let steps: Vec<_> = answer.trust_steps.into_iter().map(wire::bundle).collect();
        let (trust, refused) = self.trust.step_through(&steps);
        if let Some(refused) = refused {
            tracing::warn!("a trust bundle was not taken: {refused}");
        }
        let time = wire::proven_time(&trust, self.current.node_id, &nonce, answer.server_time).map_err(malformed)?;
        self.left_open.judge(time).map_err(|error| malformed(error.to_string()))?;

        let realm = trust.realm();
        let csr = self.key.request();
        let claims = if self.current.not_after < time { claims(Arc::clone(&self.hardware)).await? } else { Vec::new() };
        let challenge = answer.challenge;
        let asked =
            RenewalAsked { csr: csr::hash(&csr), serial: &self.current.serial, challenge: &challenge, claims: &claims };
        let possession = self.key.sign_possession(&realm, &asked);
        let csr_hash = csr::hash(&csr);
        let call = RenewRequest { csr, certificate: leaf, possession, challenge, claims, keeps_identity: true };
        let answer = within(client.renew(call)).await?;
        let verifier = NodeVerifier::new(&realm.trust_domain, &trust.roots())?;
        let certificate = verifier.identify(&certificates(&answer.certificate_chain), Validity::At(time))?;
        if certificate.node_id != self.current.node_id || certificate.public_key != self.key.public() {
            return Err(malformed("the certificate is another node's".to_owned()));
        }
        let identity = match answer.signature {
            None => None,
            Some(signature) => {
                let signature = wire::signature(Some(signature));
                Some(trust.verifier().identity(csr_hash, &answer.identity, &signature, Validity::At(time))?)
            }
        };
        if identity.as_ref().is_some_and(|identity| identity.node_id != self.current.node_id) {
            return Err(malformed("the identity is another node's".to_owned()));
        }
        Ok(Renewed { chain: answer.certificate_chain, certificate, identity, trust, time })
    }
}

async fn within<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, JoinError> {
    match tokio::time::timeout(CALL, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(refusal(&status)),
        Err(_) => Err(JoinError::Unanswered("it took too long".to_owned())),
    }
}

/// Whether what was answered is no gRPC at all, as the API's port answers in JSON. There is no word for it but what the
/// transport says.
fn speaks_something_else(message: &str) -> bool {
    ["invalid compression flag", "invalid content-type", "404 Not Found"].iter().any(|sign| message.contains(sign))
}

fn refusal(status: &Status) -> JoinError {
    let word = status.metadata().get("bc-code").and_then(|word| word.to_str().ok());
    let code = word.map_or_else(|| format!("{:?}", status.code()), str::to_owned);
    let message: String = status.message().chars().filter(|c| !c.is_control()).take(500).collect();
    match status.code() {
        Code::FailedPrecondition => JoinError::Held { code, message },
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Internal
        | Code::Aborted
        | Code::Cancelled
        | Code::Unknown => JoinError::Unanswered(message),
        _ => JoinError::Refused { code, message },
    }
}

#[cfg(test)]
mod tests;
