//! A server and a client of rmcp for skills.
//!
//!     skills_rmcp serve FOLDER         serves the skills of a folder on stdio
//!     skills_rmcp read URL modern      lists, gets and verifies the skills of a server, in that era
//!
//! read prints the files of each skill, with the digests of the bytes that it has read.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rmcp::{
    ErrorData, Peer, RoleClient, RoleServer, ServerHandler, ServiceExt,
    handler::server::skill_catalog::SkillCatalog,
    model::*,
    service::{ClientLifecycleMode, ClientServiceExt, RequestContext},
    transport::{StreamableHttpClientTransport, stdio},
};

type Failure = Box<dyn Error + Send + Sync>;

/// Serves a folder as it is when a request arrives.
#[derive(Clone)]
struct Server(Arc<SkillCatalog>);

impl Server {
    fn skills(&self) -> Result<&SkillCatalog, ErrorData> {
        let reloaded = self.0.reload();
        reloaded.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        Ok(&self.0)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_resources()
                .enable_skills_with_directory_read()
                .build(),
        )
    }

    async fn list_skills(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        Ok(self.skills()?.list_skills())
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.skills()?.get_skill(&request.uri)
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.skills()?.read_resource_directory(&request.uri)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.skills()?.resources()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let found = self.skills()?.read_resource(&request.uri);
        found
            .map(Into::into)
            .ok_or_else(|| ErrorData::resource_not_found(request.uri, None))
    }
}

/// Reads the bytes of a resource with one content.
async fn read(client: &Peer<RoleClient>, uri: &str) -> Result<Vec<u8>, Failure> {
    let result = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
    match result.contents.as_slice() {
        [ResourceContents::TextResourceContents { text, .. }] => Ok(text.clone().into_bytes()),
        [ResourceContents::BlobResourceContents { blob, .. }] => Ok(BASE64_STANDARD.decode(blob)?),
        other => Err(format!("{uri} has the contents {other:?}").into()),
    }
}

/// Returns the URIs of all files below a directory.
async fn walk(client: &Peer<RoleClient>, folder: &str) -> Result<BTreeSet<String>, Failure> {
    let (mut files, mut folders) = (BTreeSet::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let request = ReadResourceDirectoryRequestParams::new(folder.as_str());
        for child in client.read_resource_directory(request).await?.resources {
            let rest = child.uri.strip_prefix(&folder);
            if !rest.is_some_and(|rest| rest.rfind('/') == Some(0)) {
                return Err(format!("{} is no child of {folder}", child.uri).into());
            }
            if child.is_directory() {
                folders.push(child.uri);
            } else {
                files.insert(child.uri);
            }
        }
    }
    Ok(files)
}

/// Verifies the skills of a server as a host does, and prints what it has read.
async fn verify(client: &Peer<RoleClient>) -> Result<(), Failure> {
    let skills = client.list_all_skills().await?;
    validate_skills(&skills)?;
    let directories = client
        .peer_info()
        .is_some_and(|info| info.capabilities.supports_directory_read());
    let mut all = BTreeMap::new();
    for listed in skills {
        let request = GetSkillRequestParams::new(listed.uri.as_str());
        let skill = client.get_skill(request).await?.skill;
        skill.validate()?;
        let SkillResources::Files(files) = &skill.resources else {
            return Err(format!("{} has no digests", skill.uri).into());
        };
        let mut digests = BTreeMap::new();
        for file in files {
            let bytes = read(client, &file.uri).await?;
            file.verify(&bytes)?;
            digests.insert(file.uri.clone(), sha256_digest(&bytes));
        }
        if directories {
            let folder = skill.uri.strip_suffix("/SKILL.md").unwrap_or_default();
            let found = walk(client, folder).await?;
            if !found.iter().eq(digests.keys()) {
                return Err(format!("the directories of {} have {found:?}", skill.uri).into());
            }
        }
        all.insert(skill.uri, digests);
    }
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", folder] => {
            let server = Server(Arc::new(SkillCatalog::from_dir(folder)?));
            server.serve(stdio()).await?.waiting().await?;
        }
        ["read", url, era] => {
            let lifecycle = match *era {
                "modern" => ClientLifecycleMode::Discover {
                    preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                },
                _ => ClientLifecycleMode::Initialize,
            };
            let transport = StreamableHttpClientTransport::from_uri(*url);
            let client = ().serve_with_lifecycle(transport, lifecycle).await?;
            verify(client.peer()).await?;
            client.cancel().await?;
        }
        _ => return Err("usage: skills_rmcp serve FOLDER | read URL modern|legacy".into()),
    }
    Ok(())
}
